package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type inner struct {
	Name string            `json:"name"`
	Map  map[string]string `json:"map"`
}

type Embedded struct {
	Deep string `json:"deep"`
}

// own decodes itself, as a type with several forms does.
type own struct{ inner }

func (o *own) UnmarshalJSON(b []byte) error { return Unmarshal(b, &o.inner) }

type document struct {
	*Embedded
	One    inner            `json:"one"`
	Many   []*inner         `json:"many"`
	Named  map[string]inner `json:"named"`
	Own    own              `json:"own"`
	Any    any              `json:"any"`
	Hidden string           `json:"-"`
	Untold string
	Kelvin string `json:"k"`
}

func TestUnmarshal(t *testing.T) {
	var d document
	require.NoError(t, Unmarshal([]byte(` { "deep" : "d" , "one" : { "name" : "a\"}" , "map" : { "x" : "1" , "y" : "2" } } ,
		"many":[{"name":"b"},null,{"name":"c"}],"named":{"n":{"name":"e"}},"own":{"name":"f"},
		"any":[1,-2.5e3,true,null,{"One":{}},[]],"Hidden":"h","-":1,"Untold":"u","k":"v","unknown":{"Name":1}} `), &d))
	require.Equal(t, document{
		Embedded: &Embedded{"d"},
		One:      inner{`a"}`, map[string]string{"x": "1", "y": "2"}},
		Many:     []*inner{{Name: "b"}, nil, {Name: "c"}},
		Named:    map[string]inner{"n": {Name: "e"}},
		Own:      own{inner{Name: "f"}},
		Any:      []any{1.0, -2500.0, true, nil, map[string]any{"One": map[string]any{}}, []any{}},
		Untold:   "u", Kelvin: "v",
	}, d)
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("é", 99)
	for doc, says := range map[string]string{
		`{"one":{},"one":{}}`:                 `the key "one" occurs twice`,
		`{"a":1,"\u0061":2}`:                  `the key "a" occurs twice`,
		`{"x":{"y":[0,{"z":1,"z":1}]}}`:       `the key "z" occurs twice`,
		`[{"a":1},{"b":1,"b":1}]`:             `the key "b" occurs twice`,
		`{"one":{"name":"a"},"ONE":{}}`:       `the keys "one" and "ONE" differ only in case`,
		`{"unknown":1,"Unknown":1}`:           `the keys "unknown" and "Unknown" differ only in case`,
		`{"one":{"map":{"x":"1","X":"2"}}}`:   `the keys "x" and "X" differ only in case`,
		`{"One":{}}`:                          `the key "One" is "one" in another case`,
		`{"Deep":""}`:                         `the key "Deep" is "deep" in another case`,
		`{"untold":""}`:                       `the key "untold" is "Untold" in another case`,
		"{\"\u212a\":\"\"}":                   "the key \"\u212a\" is \"k\" in another case",
		`{"many":[{"name":""},{"NAME":""}]}`:  `the key "NAME" is "name" in another case`,
		`{"named":{"Name":{"Name":""}}}`:      `the key "Name" is "name" in another case`,
		`{"own":{"nAme":""}}`:                 `the key "nAme" is "name" in another case`,
		`{"own":{"name":"","name":""}}`:       `the key "name" occurs twice`,
		`{"any":{"a":1,"A":1}}`:               `the keys "a" and "A" differ only in case`,
		"{\"\\n\":1,\"\\n\":1}":               `the key "\n" occurs twice`,
		"{\"\xff\":1,\"\xfe\":1}":             `occurs twice`,
		`{"` + long + `":1,"` + long + `":1}`: `the key "` + strings.Repeat("é", 50) + `…" occurs twice`,
		many(MaxKeys + 1):                     "more than 4096 keys",
		many(MaxKeys):                         "",
	} {
		var d document
		err := Unmarshal([]byte(doc), &d)
		if says == "" {
			require.NoError(t, err, doc)
			continue
		}
		require.ErrorIs(t, err, ErrKey, doc)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "\n")
	}
}

// TestCheck: without a type, no name of a field is known.
func TestCheck(t *testing.T) {
	require.NoError(t, Check([]byte(`{"One":{"NAME":1},"two":2}`)))
	require.ErrorIs(t, Check([]byte(`{"One":{"NAME":1,"name":2}}`)), ErrKey)
	for _, doc := range []string{``, ` `, `{`, `{"a"}`, `{"a":1}}`, `{"a":1} x`, `["a`, `nul`, "\x00", strings.Repeat("[", 20000)} {
		var syntax *json.SyntaxError
		require.ErrorAs(t, Check([]byte(doc)), &syntax, "%.20q", doc)
	}
}

// TestMemory: checking takes less than what is checked, where nothing is refused.
func TestMemory(t *testing.T) {
	for name, doc := range map[string]string{
		"values":  `{"a":[` + strings.Repeat("0,", 1<<20) + `0]}`,
		"objects": `[` + strings.Repeat(`{"a":0},`, 1<<17) + `0]`,
		"depth":   strings.Repeat(`{"a":`, 9999) + "0" + strings.Repeat("}", 9999),
		"a key":   `{"` + strings.Repeat("x", 1<<20) + `":0}`,
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		require.NoError(t, Check([]byte(doc)))
		runtime.GC()
		runtime.ReadMemStats(&after)
		require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(8<<20), name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(80<<20), name)
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%d":0`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// FuzzUnmarshal compares with encoding/json: what is accepted decodes to the same
// here and there, and a decoder that reads keys as they are written gives the
// same as one that does not look at their case.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"one":{"name":"a","map":{"x":"1"}},"many":[{"name":"b"}],"own":{"name":"f"},"k":"v"}`))
	f.Add([]byte(`{"One":{},"one":{}}`))
	f.Add([]byte(`{"a":[1,{"b":"\u0062","b":2}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var strict, loose document
		err := Unmarshal(b, &strict)
		if errors.Is(err, ErrKey) {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.Equal(t, json.Unmarshal(b, &loose) == nil, err == nil)
		if err != nil {
			return
		}
		require.Equal(t, loose, strict)
		// No key is lost: what is decoded and written again has as many as are
		// there in the text.
		var v any
		require.NoError(t, json.Unmarshal(b, &v))
		require.Equal(t, keysInText(t, b), keys(v))
	})
}

func keys(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += 1 + keys(e)
		}
	case []any:
		for _, e := range v {
			n += keys(e)
		}
	}
	return n
}

// keysInText counts the keys of a document by its tokens.
func keysInText(t *testing.T, b []byte) (n int) {
	dec := json.NewDecoder(bytes.NewReader(b))
	for dec.More() {
		n += keysOfValue(t, dec)
	}
	return n
}

func keysOfValue(t *testing.T, dec *json.Decoder) (n int) {
	token, err := dec.Token()
	require.NoError(t, err)
	d, ok := token.(json.Delim)
	if !ok {
		return 0
	}
	for dec.More() {
		if d == '{' {
			_, err := dec.Token()
			require.NoError(t, err)
			n++
		}
		n += keysOfValue(t, dec)
	}
	_, err = dec.Token()
	require.NoError(t, err)
	return n
}
