// Package manifest reads the Kubernetes manifests of a release from a
// directory: every document of every .yaml, .yml and .json file in it, strictly
// and within bounds, in the order of application.
//
// The manifests come with an artifact and may be hostile. The package must not
// know a cluster: the API server checks the fields of objects, and Position finds
// the line of a field that it names in an error.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/mender-app/mender-app/artifact/names"
)

// Limits on reading. A cluster cannot store an object larger than etcd's 1.5 MiB
// anyway.
const (
	MaxFile      = 16 << 20 // of a file, in bytes
	MaxDocument  = 2 << 20  // of a document, in bytes; of a List with all its items
	MaxTotal     = 16 << 20 // of all objects together, in bytes of JSON
	MaxDocuments = 10000    // documents and items of Lists
	MaxFiles     = 10000    // files and directories
)

// Object is an object of a release.
type Object struct {
	APIVersion string
	Kind       string
	Namespace  string // as written; may be empty
	Name       string
	// JSON is the object without the fields that only a server sets: its status, and
	// metadata that an export adds.
	JSON []byte

	Sealed    bool     // it was in an encrypted file: its content must not be shown
	Overrides []string // names of the overrides that changed it

	File string // relative to the directory
	Line int    // where its document begins
	doc  int    // index of the document in the file
	item []int  // index in the List, and in the List in it; empty for none
}

// Group returns the API group, "" for the core's.
func (o *Object) Group() string {
	if g, _, ok := strings.Cut(o.APIVersion, "/"); ok {
		return g
	}
	return ""
}

// Version returns the API version without its group.
func (o *Object) Version() string {
	return o.APIVersion[strings.LastIndexByte(o.APIVersion, '/')+1:]
}

// Annotations returns the annotations that are texts.
func (o *Object) Annotations() map[string]string {
	var has struct {
		Metadata struct {
			Annotations map[string]any `json:"annotations"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(o.JSON, &has) // the API server refuses other shapes
	texts := map[string]string{}
	for k, v := range has.Metadata.Annotations {
		if text, ok := v.(string); ok {
			texts[k] = text
		}
	}
	return texts
}

// String names the object as kubectl does, with its place.
func (o *Object) String() string {
	return fmt.Sprintf("%s %s/%s", o.place(), o.Kind, o.Name)
}

func (o *Object) place() string { return fmt.Sprintf("%s:%d:", o.File, o.Line) }

// Errorf returns an error that begins with the object's place.
func (o *Object) Errorf(format string, args ...any) error {
	return &Error{File: o.File, Line: o.Line, Err: fmt.Errorf("%s/%s: %w", o.Kind, o.Name, fmt.Errorf(format, args...))}
}

// Error is a broken manifest with its place. Line is 0 if the error is in no single
// line.
type Error struct {
	File string
	Line int
	Err  error
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.File, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Read returns the objects of the manifests below dir, in the order of application
// (see Rank). Every error about their content is an *Error. Finding no manifest is an
// error.
//
// A manifest whose name ends in .age is encrypted: decrypt reads it, and it may
// contain only Secrets.
func Read(dir string, decrypt func(sealed io.Reader) ([]byte, error)) ([]Object, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	r := reader{root: root, decrypt: decrypt, seen: map[string]string{}}
	if err := fs.WalkDir(root.FS(), ".", r.visit); err != nil {
		return nil, err
	}
	if len(r.objects) == 0 {
		return nil, fmt.Errorf("no manifest: there is no object in any .yaml, .yml or .json file below %s", dir)
	}
	Sort(r.objects)
	return r.objects, nil
}

// ReadPatches returns the documents of a text that changes objects. They have the shape of
// objects, but only the fields to change. name takes the place of a file name in errors.
func ReadPatches(name string, text []byte) ([]Object, error) {
	r := reader{seen: map[string]string{}}
	err := r.file(name, bytes.NewReader(text))
	if err == nil && len(r.objects) == 0 {
		err = &Error{File: name, Err: errors.New("is empty")}
	}
	return r.objects, err
}

type reader struct {
	root    *os.Root
	decrypt func(io.Reader) ([]byte, error)
	sealed  bool // the file that is read is encrypted
	objects []Object
	files   int
	docs    int
	total   int
	seen    map[string]string // identity → place
}

// IsManifest reports whether a file is read as a manifest, by its name.
func IsManifest(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(path.Base(name), ".")
	}
	return false
}

func (r *reader) visit(name string, e fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if r.files++; r.files > MaxFiles {
		return fmt.Errorf("more than %d files of manifests", MaxFiles)
	}
	if e.IsDir() {
		if name != "." && strings.HasPrefix(e.Name(), ".") {
			return fs.SkipDir
		}
		return nil
	}
	plain, sealed := strings.CutSuffix(name, names.EncryptedSuffix)
	if !IsManifest(plain) {
		return nil
	}
	switch base := strings.ToLower(path.Base(name)); {
	case !e.Type().IsRegular():
		return &Error{File: name, Err: errors.New("not a regular file")}
	case base == "kustomization.yaml" || base == "kustomization.yml":
		return &Error{File: name, Err: errors.New("kustomize does not run on the device: app-gen renders a kustomization at the top of the manifests directory")}
	}
	f, err := r.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() > MaxFile { // before reading any of it
		return &Error{File: name, Err: errTooLarge}
	}
	if sealed {
		return r.sealedFile(name, plain, f)
	}
	return r.file(name, f)
}

// sealedFile reads an encrypted manifest. The messages of parsers quote the content,
// so they are left out of its errors.
func (r *reader) sealedFile(name, plain string, f io.Reader) error {
	if r.decrypt == nil {
		return &Error{File: name, Err: errors.New("is encrypted, and there is no key")}
	}
	text, err := r.decrypt(f)
	if err != nil {
		return &Error{File: name, Err: err}
	}
	before := len(r.objects)
	var ours error
	r.sealed = true
	err = documents(plain, bytes.NewReader(text), func(d document) error {
		data, err := d.json()
		if err != nil || data == nil {
			return err
		}
		ours = r.object(d, data, nil)
		return ours
	})
	r.sealed = false
	var e *Error
	if err != nil && ours == nil {
		hidden := &Error{File: name, Err: errors.New("the decrypted file is not a manifest; the reason is not shown, because the file has secrets: decrypt it, check it, and encrypt it again")}
		if errors.As(err, &e) {
			hidden.Line = e.Line
		}
		return hidden
	}
	if errors.As(err, &e) {
		e.File = name
	}
	for i := range r.objects[before:] {
		o := &r.objects[before+i]
		o.File, o.Sealed = name, true
	}
	return err
}

func (r *reader) file(name string, f io.Reader) error {
	return documents(name, f, func(d document) error { return r.document(d) })
}

// header has the fields that every object has.
type header struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   json.RawMessage   `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

func (r *reader) document(d document) error {
	data, err := d.json()
	if err != nil || data == nil {
		return err
	}
	return r.object(d, data, nil)
}

func (r *reader) object(d document, data []byte, item []int) error {
	fail := func(format string, args ...any) error {
		err := fmt.Errorf(format, args...)
		if len(item) > 0 {
			err = fmt.Errorf("item %d: %w", item[len(item)-1]+1, err)
		}
		return &Error{File: d.file, Line: d.line, Err: err}
	}
	if r.docs++; r.docs > MaxDocuments {
		return fail("more than %d objects", MaxDocuments)
	}
	var h header
	if err := json.Unmarshal(data, &h); err != nil {
		return fail("not a Kubernetes object: %v", err)
	}
	if h.APIVersion == "" || h.Kind == "" {
		return fail("not a Kubernetes object: apiVersion and kind are needed")
	}
	if h.Items != nil && strings.HasSuffix(h.Kind, "List") {
		if len(item) > 3 {
			return fail("Lists in Lists in Lists")
		}
		for i, sub := range h.Items {
			if err := r.object(d, sub, append(append([]int(nil), item...), i)); err != nil {
				return err
			}
		}
		return nil
	}
	if r.sealed && (h.Kind != "Secret" || h.APIVersion != "v1") {
		return fail("%s: an encrypted manifest may contain only Secrets", h.Kind)
	}
	if strings.HasPrefix(h.APIVersion, "kustomize.config.k8s.io/") {
		return fail("kustomize does not run on the device: app-gen renders a kustomization at the top of the manifests directory")
	}
	var meta struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
		Namespace    string `json:"namespace"`
	}
	if err := json.Unmarshal(h.Metadata, &meta); len(h.Metadata) > 0 && err != nil {
		return fail("%s: metadata: %v", h.Kind, err)
	}
	switch {
	case meta.Name == "" && meta.GenerateName != "":
		return fail("%s: metadata.generateName: each installation would make another one; give it a name", h.Kind)
	case meta.Name == "":
		return fail("%s: metadata.name is missing", h.Kind)
	}
	clean, err := stripServerFields(data)
	if err != nil {
		return fail("%s/%s: %v", h.Kind, meta.Name, err)
	}
	o := Object{
		APIVersion: h.APIVersion, Kind: h.Kind, Namespace: meta.Namespace, Name: meta.Name,
		JSON: clean, File: d.file, Line: d.line, doc: d.index, item: item,
	}
	id := strings.Join([]string{o.Group(), o.Kind, o.Namespace, o.Name}, "\x00")
	if first, ok := r.seen[id]; ok {
		return fail("%s/%s is in %s already", o.Kind, o.Name, first)
	}
	r.seen[id] = fmt.Sprintf("%s:%d", o.File, o.Line)
	if r.total += len(clean); r.total > MaxTotal {
		return fail("the manifests are larger than %d MiB together", MaxTotal>>20)
	}
	r.objects = append(r.objects, o)
	return nil
}

// stripServerFields removes fields that an export adds and that must not be applied.
func stripServerFields(data []byte) ([]byte, error) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, err
	}
	delete(o, "status")
	if raw, ok := o["metadata"]; ok {
		var meta map[string]json.RawMessage
		if err := json.Unmarshal(raw, &meta); err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
		for _, k := range []string{"managedFields", "resourceVersion", "uid", "selfLink", "generation", "creationTimestamp"} {
			delete(meta, k)
		}
		b, err := json.Marshal(meta)
		if err != nil {
			return nil, err
		}
		o["metadata"] = b
	}
	return json.Marshal(o)
}
