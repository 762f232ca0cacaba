package serve

import (
	"html"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
)

// markup is a piece of a page. Only element makes it, so what comes from the device is always
// text. html/template would add 1.7 MB to the program.
type markup string

// attr is an attribute of an element: its name and value.
type attr [2]string

// empty are elements without an end tag.
const empty = " meta link "

// element makes an element. "p.bad" is a paragraph of the class bad. Its parts are attributes,
// texts and elements. An attribute without a value is left out.
func element(name string, parts ...any) markup {
	tag, class, _ := strings.Cut(name, ".")
	var head, body strings.Builder
	head.WriteString("<" + tag)
	if class != "" {
		head.WriteString(` class="` + class + `"`)
	}
	for _, part := range parts {
		switch p := part.(type) {
		case attr:
			if p[1] != "" {
				head.WriteString(" " + p[0] + `="` + html.EscapeString(clip.Quote(p[1])) + `"`)
			}
		case markup:
			body.WriteString(string(p))
		case string:
			body.WriteString(html.EscapeString(clip.Quote(p)))
		}
	}
	head.WriteString(">")
	if strings.Contains(empty, " "+tag+" ") {
		return markup(head.String())
	}
	return markup(head.String() + body.String() + "</" + tag + ">")
}

// join puts pieces one after the other.
func join(parts ...markup) markup {
	var out strings.Builder
	for _, p := range parts {
		out.WriteString(string(p))
	}
	return markup(out.String())
}
