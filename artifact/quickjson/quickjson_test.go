package quickjson

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type document struct {
	Text   string          `json:"text"`
	List   []string        `json:"list"`
	Number int             `json:"number"`
	Small  int8            `json:"small"`
	Real   float64         `json:"real"`
	Yes    bool            `json:"yes"`
	At     time.Time       `json:"at"`
	Raw    json.RawMessage `json:"raw"`
	Map    map[string]int  `json:"map"`
	Inner  []inner         `json:"inner"`
	Left   ignored         `json:"left"`
}

type inner struct {
	Name string `json:"name"`
}

type ignored struct{}

func (*ignored) UnmarshalJSON([]byte) error { return nil }

// read reads a document in its usual form.
func read(data []byte) (d document, ok bool) {
	r := Of(data)
	r.Object(func(name []byte) {
		switch string(name) {
		case "text":
			d.Text = r.String()
		case "list":
			d.List = r.Strings()
		case "number":
			d.Number = int(r.Int(64))
		case "small":
			d.Small = int8(r.Int(8))
		case "real":
			d.Real = r.Float()
		case "yes":
			d.Yes = r.Bool()
		case "at":
			d.At = r.Time()
		case "raw":
			d.Raw = r.Raw()
		case "map":
			if d.Map != nil {
				r.Fail() // encoding/json joins the two
				return
			}
			r.Into(&d.Map)
		case "inner":
			if d.Inner != nil {
				r.Fail()
				return
			}
			d.Inner = []inner{}
			r.Array(func() {
				var i inner
				r.Object(func(name []byte) {
					if string(name) != "name" {
						r.Fail()
						return
					}
					i.Name = r.String()
				})
				d.Inner = append(d.Inner, i)
			})
		case "left":
			r.Skip()
		default:
			r.Fail()
		}
	})
	return d, r.Whole()
}

var usual = []string{
	`{}`,
	` { "text" : "a" , "list" : [ "b" , "\u0063\n\"" ] } `,
	`{"text":"ä\ud83d\ude00\/","number":-12,"small":127,"real":-0.5e-3,"yes":true,"at":"2026-11-24T07:13:39.5+01:00"}`,
	`{"raw":{"a":[1,2.5,null,true,false,"\u003e"]},"map":{"x":1},"inner":[{"name":"n"},{}],"left":[[],{"a":{}},"b"]}`,
	`{"text":"a","text":"b","list":[],"yes":false,"number":0,"left":null}`,
	"{\"raw\":\t7 }",
}

// What is read is what encoding/json reads.
func TestUsual(t *testing.T) {
	for _, text := range usual {
		got, ok := read([]byte(text))
		require.True(t, ok, text)
		var want document
		require.NoError(t, json.Unmarshal([]byte(text), &want), text)
		require.Equal(t, want, got, text)
	}
}

func TestUnusual(t *testing.T) {
	deep := make([]byte, 0, 3*maxDepth)
	for range maxDepth {
		deep = append(deep, '[')
	}
	for _, text := range []string{
		``, ` `, `null`, `[]`, `7`, `"a"`, `{`, `{}{}`, `{},`, `{"a":1}`, `{"Text":"a"}`, `{"\u0074ext":"a"}`, `{"text":null}`, `{"raw":null}`, `{"text":7}`,
		`{"text":"a",}`, `{,}`, `{"text"}`, `{"text":}`, `{"text":"a" "list":[]}`, `{text:1}`, `{"text":"a`, `{"text":"\x"}`, `{"text":"\u12g4"}`, `{"text":"\`, "{\"text\":\"\n\"}",
		`{"list":["a",]}`, `{"list":[,]}`, `{"list":["a"`, `{"list":{}}`, `{"number":01}`, `{"number":-}`, `{"number":1.}`, `{"number":1.0}`, `{"number":1e}`, `{"number":+1}`, `{"small":128}`,
		`{"number":99999999999999999999}`, `{"real":1e999}`, `{"yes":tru}`, `{"yes":1}`, `{"at":"yesterday"}`, `{"at":7}`, `{"left":nul}`, `{"left":truefalse}`, `{"left":{"a"}}`, `{"left":{a:1}}`,
		`{"map":[]}`, `{"map":{"a":1},"map":{}}`, `{"inner":[{"name":"a"}],"inner":[{}]}`, `{"left":` + string(deep),
	} {
		_, ok := read([]byte(text))
		require.False(t, ok, text)
	}
}

// FuzzRead: whatever can be read, encoding/json reads the same.
func FuzzRead(f *testing.F) {
	for _, text := range usual {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := string(data)
		got, ok := read(data)
		require.Equal(t, before, string(data))
		if !ok {
			return
		}
		var want document
		require.NoError(t, json.Unmarshal(data, &want))
		require.True(t, reflect.DeepEqual(want, got), "%+v\n%+v", want, got)
	})
}
