package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "gopkg.in/yaml.v3"
	"sigs.k8s.io/yaml"

	"github.com/mender-app/mender-app/artifact/clip"
)

// document is one document of a file.
type document struct {
	file  string
	index int
	line  int // its first line with something on it
	text  []byte
	start int // the line text begins on
}

// documents calls fn for each document of a file, also for comments and empty
// documents, so that indexes match the position in the file.
func documents(name string, f io.Reader, fn func(document) error) error {
	limit := &io.LimitedReader{R: f, N: MaxFile + 1}
	var err error
	if strings.EqualFold(path.Ext(name), ".json") {
		err = jsonDocuments(name, limit, fn)
	} else {
		err = yamlDocuments(name, limit, fn)
	}
	if limit.N == 0 {
		return &Error{File: name, Err: errTooLarge}
	}
	return err
}

var errTooLarge = fmt.Errorf("larger than %d MiB", MaxFile>>20)

func yamlDocuments(name string, f io.Reader, fn func(document) error) error {
	r := bufio.NewReaderSize(f, 64<<10)
	d := document{file: name, start: 1}
	var text bytes.Buffer
	end := func(next int) error {
		d.text, d.line = text.Bytes(), 0
		err := error(nil)
		if d.line = firstLine(d.text, d.start); d.line > 0 {
			err = fn(d)
		}
		text.Reset()
		d.start = next
		d.index++
		return err
	}
	for n := 1; ; n++ {
		line, rerr := readLine(r, MaxDocument)
		if rerr != nil && rerr != io.EOF {
			return &Error{File: name, Line: n, Err: rerr}
		}
		switch rest, sep := separator(line); {
		case sep:
			if err := end(n); err != nil {
				return err
			}
			text.Write(rest)
		default:
			text.Write(line)
		}
		if text.Len() > MaxDocument {
			return &Error{File: name, Line: d.start, Err: fmt.Errorf("a document of more than %d MiB", MaxDocument>>20)}
		}
		if rerr == io.EOF {
			return end(n)
		}
	}
}

// readLine reads a line with its newline, at most limit bytes.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("a line of more than %d MiB", limit>>20)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// separator reports whether a line begins a document, and returns the rest of the
// line, indented to its column.
func separator(line []byte) (rest []byte, ok bool) {
	if bytes.HasPrefix(line, []byte("...")) && len(bytes.TrimSpace(line)) == 3 {
		return []byte("\n"), true
	}
	rest, ok = bytes.CutPrefix(line, []byte("---"))
	if !ok || len(rest) > 0 && !bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])) {
		return nil, false
	}
	return append([]byte("   "), rest...), true
}

// firstLine returns the number of the first line that is neither empty nor a
// comment, 0 if there is none.
func firstLine(text []byte, start int) int {
	for n := start; len(text) > 0; n++ {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		if t := bytes.TrimSpace(line); len(t) > 0 && t[0] != '#' {
			return n
		}
		text = rest
	}
	return 0
}

var (
	yamlLine  = regexp.MustCompile(`line (\d+)`)
	yamlNoise = regexp.MustCompile(`^(?:error converting YAML to JSON: )?(?:yaml: )?(?:unmarshal errors:\s*)?(?:line \d+: )?`)
)

// json returns the document as JSON, nil if it is empty. Duplicate keys and
// anchors that grow beyond the bounds are errors.
func (d document) json() ([]byte, error) {
	if d.isJSON() {
		return d.checkJSON()
	}
	if err := d.checkNodes(); err != nil {
		return nil, err
	}
	if err := d.checkAliases(); err != nil {
		return nil, err
	}
	// The conversion Kubernetes itself uses: YAML 1.1, where `on` is a boolean.
	data, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return nil, d.yamlError(err)
	}
	data = bytes.TrimSpace(data)
	if bytes.Equal(data, []byte("null")) {
		return nil, nil
	}
	return data, nil
}

func (d document) isJSON() bool { return strings.EqualFold(path.Ext(d.file), ".json") }

// yamlError converts an error of a parser: its line, which counts from the start of
// the document, becomes the line in the file.
func (d document) yamlError(err error) error {
	e := &Error{File: d.file, Line: d.line}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		if n, aerr := strconv.Atoi(m[1]); aerr == nil {
			e.Line = d.start + n - 1
		}
	}
	text := yamlNoise.ReplaceAllString(strings.TrimSpace(clip.YAML(err)), "")
	text, _, _ = strings.Cut(text, "\n")
	e.Err = errors.New(text)
	return e
}

// maxSeparators bounds the characters that can separate the nodes of a YAML
// document: a node of two bytes takes some 200 bytes when it is parsed.
const maxSeparators = 200_000

// checkNodes refuses a document that may have more nodes than memory allows,
// before anything parses it. It also counts the commas in block text, which separate
// nothing; a text with that many commas can be written as binaryData.
func (d document) checkNodes() error {
	n := 0
	for _, sep := range []string{",", "\n", "[", "{", "?"} {
		if n += bytes.Count(d.text, []byte(sep)); n > maxSeparators {
			return &Error{File: d.file, Line: d.line, Err: fmt.Errorf("more than %d lines and items in one document", maxSeparators)}
		}
	}
	return nil
}

// maxNodes bounds the nodes of a document with its aliases expanded.
const maxNodes = 500_000

// checkAliases refuses a document whose aliases expand to more than maxNodes, before
// anything expands them.
func (d document) checkAliases() error {
	if bytes.IndexByte(d.text, '&') < 0 || bytes.IndexByte(d.text, '*') < 0 {
		return nil
	}
	var n yamlv3.Node
	if err := yamlv3.Unmarshal(d.text, &n); err != nil {
		return d.yamlError(err)
	}
	size := map[*yamlv3.Node]int{}
	var walk func(n *yamlv3.Node) int
	walk = func(n *yamlv3.Node) int {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		if s, ok := size[n]; ok {
			return s
		}
		size[n] = maxNodes + 1 // an anchor that contains itself has no end
		sum := 1 + len(n.Value)/64
		for _, c := range n.Content {
			if sum += walk(c); sum > maxNodes {
				sum = maxNodes + 1
				break
			}
		}
		size[n] = sum
		return sum
	}
	if walk(&n) > maxNodes {
		return &Error{File: d.file, Line: d.line, Err: errors.New("its anchors and aliases grow beyond all bounds")}
	}
	return nil
}

func jsonDocuments(name string, f io.Reader, fn func(document) error) error {
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	lines := lineCounter{data: data}
	for i := 0; ; i++ {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			off := dec.InputOffset()
			var se *json.SyntaxError
			if errors.As(err, &se) {
				off = se.Offset
			}
			return &Error{File: name, Line: lines.at(off), Err: err}
		}
		if len(raw) > MaxDocument {
			return &Error{File: name, Err: fmt.Errorf("a document of more than %d MiB", MaxDocument>>20)}
		}
		line := lines.at(dec.InputOffset() - int64(len(raw)))
		if err := fn(document{file: name, index: i, line: line, start: line, text: raw}); err != nil {
			return err
		}
	}
}

// lineCounter gives the lines of offsets that only grow.
type lineCounter struct {
	data []byte
	off  int64
	n    int
}

func (l *lineCounter) at(off int64) int {
	off = min(off, int64(len(l.data)))
	if off < l.off {
		l.off, l.n = 0, 0
	}
	l.n += bytes.Count(l.data[l.off:off], []byte("\n"))
	l.off = off
	return l.n + 1
}

// checkJSON returns the document unless it has a key twice.
func (d document) checkJSON() ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(d.text))
	dec.UseNumber()
	lines := lineCounter{data: d.text}
	type level struct {
		keys map[string]bool // nil in an array
		key  bool            // a key comes next
	}
	var stack []level
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, &Error{File: d.file, Line: d.line, Err: err}
		}
		top := len(stack) - 1
		switch t := tok.(type) {
		case json.Delim:
			switch t {
			case '{':
				stack = append(stack, level{keys: map[string]bool{}, key: true})
				continue
			case '[':
				stack = append(stack, level{})
				continue
			}
			stack = stack[:top]
			top--
		case string:
			if top >= 0 && stack[top].key {
				if stack[top].keys[t] {
					return nil, &Error{File: d.file, Line: d.start + lines.at(dec.InputOffset()) - 1, Err: fmt.Errorf("key %q already set in map", t)}
				}
				stack[top].keys[t] = true
				stack[top].key = false
				continue
			}
		}
		if top >= 0 && stack[top].keys != nil {
			stack[top].key = true
		}
	}
	if bytes.Equal(bytes.TrimSpace(d.text), []byte("null")) {
		return nil, nil
	}
	return d.text, nil
}
