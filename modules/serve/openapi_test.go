package serve

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules/view"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// The description is made of the routes and of the types that they answer with.
func TestDescriptionIsOfTheImplementation(t *testing.T) {
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(describe(t)))
	if *update {
		require.NoError(t, os.WriteFile("openapi.json", want.Bytes(), 0o644))
		return
	}
	require.Equal(t, want.String(), string(openAPI), "go test ./modules/serve -run Description -update")
}

type object = map[string]any

// describe makes the description.
func describe(t *testing.T) object {
	d := &describer{t: t, schemas: object{}, types: map[string]reflect.Type{}, comments: map[string]string{}}
	for _, dir := range []string{".", "../view", "../../store", "../../submodules", "../hold", "../staging", "../reconcile", "../policy", "../../artifact/statement"} {
		d.readComments(dir)
	}
	problem := d.schema(reflect.TypeOf(Problem{}))
	paths := object{}
	for _, r := range routes() {
		params := []object{}
		for _, m := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(r.path, -1) {
			schema := object{"type": "string"}
			if m[1] == "number" {
				schema = object{"type": "integer", "minimum": 1}
			}
			params = append(params, object{"name": m[1], "in": "path", "required": true, "schema": schema})
		}
		for _, p := range r.params {
			params = append(params, object{"name": p.name, "in": "query", "description": p.about, "schema": p.schema(), "explode": false})
		}
		if r.stream != nil {
			params = append(params, object{"name": "Last-Event-ID", "in": "header", "description": "The id of the last event that was received.", "schema": object{"type": "string"}})
		}
		media := object{}
		switch {
		case r.stream != nil:
			media["schema"] = object{"type": "string", "description": "Each data line is an Event."}
			d.schema(reflect.TypeOf(r.answer))
		case r.answer == nil:
			media["schema"] = object{"type": "string"}
		default:
			media["schema"] = d.schema(reflect.TypeOf(r.answer))
		}
		ok := object{"description": "The answer.", "content": object{strings.SplitN(r.contentType(), ";", 2)[0]: media}}
		responses := object{"200": ok, "default": object{"$ref": "#/components/responses/Problem"}}
		if r.stream == nil {
			responses["304"] = object{"$ref": "#/components/responses/Unchanged"}
		}
		op := object{"summary": r.summary, "operationId": operation(r.path), "parameters": params, "responses": responses}
		if r.open {
			op["security"] = []object{{}}
		}
		paths[r.path] = object{"get": op}
	}
	for _, a := range deeds() {
		paths[a.path] = object{"post": d.deed(a)}
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "mender-app serve", "version": "1",
			"description": "What the commands of mender-app print with --json. Nothing is changed, but by the actions (POST), which mender-app serve --allow-actions takes over the unix socket from root and the group mender-app. Fields are only ever added within v1.",
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"security": []object{{}, {"token": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas": d.schemas,
			"responses": object{
				"Problem":   object{"description": "An error.", "content": object{"application/json": object{"schema": problem}}},
				"Unchanged": object{"description": "It is what If-None-Match names."},
			},
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "With mender-app serve --listen."}},
		},
	}
}

// deed describes an action.
func (d *describer) deed(a deed) object {
	params := []object{}
	if strings.Contains(a.path, "{app}") {
		params = append(params, object{"name": "app", "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	d.schema(reflect.TypeFor[Order]())
	all := d.schemas["Order"].(object)["properties"].(object)
	fields := object{}
	for _, name := range a.fields {
		require.Contains(d.t, all, name)
		fields[name] = all[name]
	}
	media := object{"application/json": object{"schema": d.schema(reflect.TypeFor[Action]())}}
	return object{
		"summary": a.summary, "operationId": operation(a.path), "parameters": params,
		"requestBody": object{"required": true, "content": object{"application/json": object{"schema": object{
			"type": "object", "properties": fields, "additionalProperties": false,
		}}}},
		"responses": object{
			"200":     object{"description": "It is done.", "content": media},
			"202":     object{"description": "It is at work; the header Location names its path.", "content": media},
			"default": object{"$ref": "#/components/responses/Problem"},
		},
	}
}

// operation names a path.
func operation(path string) string {
	name := strings.Trim(regexp.MustCompile(`\W+`).ReplaceAllString(strings.TrimPrefix(path, "/v1"), "-"), "-")
	return strings.ReplaceAll(name, "-json", "")
}

func (p param) schema() object {
	switch {
	case p.most > 0:
		s := object{"type": "integer", "minimum": p.least, "maximum": p.most}
		if p.usual > 0 {
			s["default"] = p.usual
		}
		return s
	case p.list != nil:
		return object{"type": "array", "items": object{"type": "string", "enum": p.list}}
	}
	return object{"type": "string"}
}

type describer struct {
	t        *testing.T
	schemas  object
	types    map[string]reflect.Type // by the names of their schemas
	comments map[string]string       // "package.Type" and "package.Type.Field" → text
}

// readComments reads what the source says of fields.
func (d *describer) readComments(dir string) {
	files, err := filepath.Glob(dir + "/*.go")
	require.NoError(d.t, err)
	text := func(groups ...*ast.CommentGroup) string {
		for _, g := range groups {
			if g != nil {
				return strings.Replace(strings.Join(strings.Fields(g.Text()), " "), "one of the constants below", "", 1)
			}
		}
		return ""
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(d.t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, s := range decl.Specs {
				spec, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				key := file.Name.Name + "." + spec.Name.Name
				if st, ok := spec.Type.(*ast.StructType); ok {
					for _, f := range st.Fields.List {
						for _, n := range f.Names {
							d.comments[key+"."+n.Name] = text(f.Doc, f.Comment)
						}
					}
				}
			}
			return true
		})
	}
}

// schema describes a type; a struct is described once, by its name.
func (d *describer) schema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[digest.Digest]():
		return object{"type": "string"}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return object{"type": "object"}
		}
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	}
	require.Equal(d.t, reflect.Struct, t.Kind(), t)
	name := t.Name()
	if of, taken := d.types[name]; taken && of != t {
		name = strings.ReplaceAll(t.String(), ".", "-")
	}
	if _, known := d.schemas[name]; !known {
		d.types[name] = t
		s := object{"type": "object"}
		d.schemas[name] = s
		properties, required := object{}, []string{}
		d.fields(t, properties, &required)
		s["properties"], s["required"] = properties, required
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// fields adds the fields of a struct, and those of embedded ones.
func (d *describer) fields(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			d.fields(inner, properties, required)
			continue
		case name == "-" || !f.IsExported():
			continue
		case name == "": // Role, which MarshalJSON adds
			require.Equal(d.t, reflect.TypeFor[view.StoredRelease](), t)
			name = strings.ToLower(f.Name)
		}
		s := d.schema(f.Type)
		if about := d.comments[t.String()+"."+f.Name]; about != "" {
			if s["$ref"] != nil {
				s = object{"$ref": s["$ref"], "description": about}
			} else {
				s["description"] = about
			}
		}
		if f.Type.Kind() == reflect.Slice && !strings.Contains(options, "omit") {
			s["type"] = []string{"array", "null"}
		}
		properties[name] = s
		if !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
}
