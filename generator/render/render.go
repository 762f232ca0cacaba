// Package render makes plain Kubernetes objects of a kustomization or a chart, on the
// build host: a device runs neither kustomize nor helm. Rendering reads only files of the
// manifests directory and files of values. It uses no network and runs no program, and the same files give
// the same bytes.
package render

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/generator/manifests"
)

// The files that rendered objects are shipped in. Secrets have a file of their own,
// because only a file without other objects can be encrypted.
const (
	ObjectsFile = "rendered.yaml"
	SecretsFile = "rendered-secrets.yaml"
)

// Object is a rendered object.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Origin is the file that it comes from, relative to the manifests directory.
	Origin string `json:"origin,omitempty"`

	secret bool
	text   []byte
}

// String names the object as kubectl does.
func (o *Object) String() string { return strings.ToLower(o.Kind) + "/" + o.Name }

// Rendered is the result of rendering.
type Rendered struct {
	From    string   `json:"from"` // the file at the top of the manifests directory
	Objects []Object `json:"objects"`
	// Text is the content of ObjectsFile. That of SecretsFile is in no report.
	Text string `json:"text"`
	// Notes say what is left out.
	Notes []string `json:"-"`
}

// Top names the file at the top of dir that says how the directory is rendered; "" if
// there is none.
func Top(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("manifests directory: %w", err)
	}
	var found []string
	for _, e := range entries {
		if !e.IsDir() && isTop(e.Name()) {
			found = append(found, e.Name())
		}
	}
	if len(found) > 1 {
		return "", &manifests.Error{Place: manifests.Place{File: found[1]}, Text: "there is " + found[0] + " too, and only one can be rendered", Hint: "remove one of them"}
	}
	return strings.Join(found, ""), nil
}

func isTop(name string) bool { return name == chartFile || slices.Contains(kustomizationFiles, name) }

// IsChart reports whether a file that Top found makes the directory a chart.
func IsChart(top string) bool { return top == chartFile }

// Render renders the directory dir, in which Top found from. In messages the directory
// has the absolute path shown. release is for a chart alone. After the error of what takes
// too long or too much, rendering goes on behind the caller's back: it ends the process.
func Render(dir, shown, from string, release Release) (*Rendered, error) {
	r := &Rendered{From: from}
	err := bounded(from, func() (err error) {
		if IsChart(from) {
			r.Objects, r.Notes, err = renderChart(dir, release)
		} else {
			r.Objects, err = kustomize(dir, shown, from)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(r.Objects) == 0 {
		return nil, noObjects(from)
	}
	text, _ := r.files()
	r.Text = string(text)
	return r, nil
}

// files are the contents of ObjectsFile and SecretsFile.
func (r *Rendered) files() (objects, secrets []byte) {
	for i := range r.Objects {
		o := &r.Objects[i]
		if o.secret {
			secrets = append(secrets, o.document()...)
		} else {
			objects = append(objects, o.document()...)
		}
	}
	return objects, secrets
}

// document is the object as a document of YAML. A comment has its origin.
func (o *Object) document() []byte {
	var b bytes.Buffer
	b.WriteString("---\n")
	if o.Origin != "" {
		fmt.Fprintf(&b, "# %s\n", strings.Join(strings.Fields(o.Origin), " "))
	}
	b.Write(bytes.TrimSpace(o.text))
	b.WriteByte('\n')
	return b.Bytes()
}

// Write writes the files into the existing directory dir, which must not have them.
func (r *Rendered) Write(dir string) error {
	objects, secrets := r.files()
	for _, f := range []struct {
		name string
		text []byte
	}{{ObjectsFile, objects}, {SecretsFile, secrets}} {
		if len(f.text) == 0 {
			continue
		}
		if err := manifests.WriteNew(dir, f.name, f.text); err != nil {
			return err
		}
	}
	return nil
}

// Place names where a place in a rendered file comes from: the file that the object was
// made from, without a line. Other places stay.
func (r *Rendered) Place(p manifests.Place) manifests.Place {
	if r == nil || p.File != ObjectsFile && p.File != SecretsFile {
		return p
	}
	line := 1
	for i := range r.Objects {
		o := &r.Objects[i]
		if o.secret != (p.File == SecretsFile) {
			continue
		}
		line += bytes.Count(o.document(), []byte("\n"))
		if p.Line < line {
			if o.Origin == "" {
				break
			}
			return manifests.Place{File: o.Origin}
		}
	}
	return manifests.Place{File: r.From}
}

func noObjects(from string) *manifests.Error {
	return &manifests.Error{Place: manifests.Place{File: from}, Text: "it has no objects"}
}
