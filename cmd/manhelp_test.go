package cmd

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateManuals = flag.Bool("update", false, "write what the manual pages have from --help")

// manualsFromHelp are the pages with parts that have the words of --help, so that these are
// written once. A part is between two comments that name it.
var manualsFromHelp = map[string]string{
	"mender-app": "mender-app.8", "app-gen": "app-gen.1", "app-conformance": "app-conformance.1", "app": "mender-app-module.8",
	"docker-compose": "mender-app-docker-compose.8", "k8s": "mender-app-k8s.8",
}

// TestManualsHaveHelp: those parts are what --help says. With -update it writes them.
func TestManualsHaveHelp(t *testing.T) {
	part := regexp.MustCompile(`(?ms)^\.\\" ([a-z ]+), from --help\n(.*?)^\.\\" end\n`)
	for program, page := range manualsFromHelp {
		file := filepath.Join("..", "packaging", "man", page)
		manual, err := os.ReadFile(file)
		require.NoError(t, err)
		var root interface {
			part(t *testing.T, name string) string
		} = readTables(t, built(t, program))
		if program == "mender-app" || program == "app-gen" { // they have commands
			root = readHelp(t, built(t, program))
		}
		found := part.FindAllStringSubmatch(string(manual), -1)
		require.NotEmpty(t, found, page)
		now := part.ReplaceAllStringFunc(string(manual), func(s string) string {
			name := part.FindStringSubmatch(s)[1]
			return fmt.Sprintf(".\\\" %s, from --help\n%s.\\\" end\n", name, root.part(t, name))
		})
		if *updateManuals {
			require.NoError(t, os.WriteFile(file, []byte(now), 0o644))
			continue
		}
		require.Equal(t, now, string(manual), "%s differs from --help: go test ./cmd -run TestManualsHaveHelp -update", page)
	}
}

// help is what a command says of itself.
type help struct {
	command  []string // its words, without the program's name
	about    []string // lines
	codes    []string // lines of the exit codes
	usage    string
	commands []helpGroup
	flags    []helpGroup
	below    map[string]*help
}

// helpGroup is a list of commands or options with its title, as lines.
type helpGroup struct {
	title string
	lines []string
}

// readHelp asks a program about a command of it and all commands below that.
func readHelp(t *testing.T, binary string, command ...string) *help {
	t.Helper()
	out, err := exec.Command(binary, append(command, "--help")...).Output()
	require.NoError(t, err, command)
	about, rest, ok := strings.Cut(string(out), "\nUsage:\n")
	require.True(t, ok, command)
	h := &help{command: command, below: map[string]*help{}}
	about, codes, _ := strings.Cut(about, "Exit codes:\n")
	codes, more, _ := strings.Cut(codes, "\n\n")
	h.about = strings.Split(strings.Trim(about+"\n"+more, "\n"), "\n")
	h.codes = strings.Split(strings.Trim(codes, "\n"), "\n")
	title := regexp.MustCompile(`^([A-Z][A-Za-z ]+):$`)
	group := helpGroup{title: "Usage"}
	close := func() {
		switch lines := strings.Trim(strings.Join(group.lines, "\n"), "\n"); {
		case group.title == "Usage":
			h.usage, _, _ = strings.Cut(lines, "\n")
		case group.title == "Examples" || group.title == "Global Flags":
		case strings.HasPrefix(strings.TrimSpace(lines), "-"):
			h.flags = append(h.flags, helpGroup{group.title, strings.Split(lines, "\n")})
		default:
			h.commands = append(h.commands, helpGroup{group.title, strings.Split(lines, "\n")})
		}
	}
	for line := range strings.Lines(rest) {
		line = strings.TrimRight(line, "\n")
		if m := title.FindStringSubmatch(line); m != nil {
			close()
			group = helpGroup{title: m[1]}
		} else if strings.HasPrefix(line, " ") || line == "" {
			group.lines = append(group.lines, line)
		}
	}
	close()
	for _, g := range h.commands {
		for _, name := range g.names() {
			h.below[name] = readHelp(t, binary, append(append([]string{}, command...), name)...)
		}
	}
	return h
}

// names returns the commands of a group, without those that every program has.
func (g helpGroup) names() (names []string) {
	for _, line := range g.lines {
		if m := regexp.MustCompile(`^  ([a-z-]+)  `).FindStringSubmatch(line); m != nil && m[1] != "help" && m[1] != "completion" {
			names = append(names, m[1])
		}
	}
	return names
}

// tables are the lists of a program without commands, by their titles: what is explained,
// and the lines that explain it.
type tables map[string][][]string

func readTables(t *testing.T, binary string) tables {
	t.Helper()
	out, err := exec.Command(binary, "--help").Output()
	require.NoError(t, err)
	title := regexp.MustCompile(`^([A-Za-z][A-Za-z ]*):$`)
	row := regexp.MustCompile(`^  (\S.*?)  +(\S.*)$`)
	all, list := tables{}, ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		if m := title.FindStringSubmatch(line); m != nil {
			list = strings.ToLower(m[1])
		} else if m := row.FindStringSubmatch(line); m != nil && list != "" {
			all[list] = append(all[list], m[1:])
		} else if rows := all[list]; len(rows) > 0 && strings.HasPrefix(line, "   ") {
			rows[len(rows)-1] = append(rows[len(rows)-1], strings.TrimSpace(line))
		} else if line == "" {
			list = ""
		}
	}
	return all
}

func (l tables) part(t *testing.T, name string) string {
	t.Helper()
	rows, compact := l[name], ""
	if name == "exit status" {
		compact = " -compact"
		if rows == nil {
			rows = l["exit codes"]
		}
	}
	require.NotEmpty(t, rows, name)
	var b strings.Builder
	b.WriteString(".Bl -tag -width Ds" + compact + "\n")
	for _, row := range rows {
		word, rest, _ := strings.Cut(row[0], " ")
		switch name {
		case "verbs":
			word = "Cm " + word
		case "environment":
			word = "Ev " + word
		}
		if b.WriteString(".It " + word); rest != "" {
			b.WriteString(" Ar " + roff(rest))
		}
		b.WriteString("\n")
		writeText(&b, row[1:])
	}
	b.WriteString(".El\n")
	return b.String()
}

func (h *help) part(t *testing.T, name string) string {
	t.Helper()
	var b strings.Builder
	switch name {
	case "description":
		writeText(&b, h.about)
	case "commands":
		for _, g := range h.commands {
			if len(h.commands) > 1 {
				fmt.Fprintf(&b, ".Ss %s\n", g.title)
			}
			b.WriteString(".Bl -tag -width Ds\n")
			for _, name := range g.names() {
				h.below[name].write(&b)
			}
			b.WriteString(".El\n")
		}
	case "options":
		for _, g := range h.flags {
			fmt.Fprintf(&b, ".Ss %s\n", g.title)
			g.writeFlags(&b)
		}
	case "exit status":
		b.WriteString(".Bl -tag -width Ds -compact\n")
		code, after := regexp.MustCompile(`^  (\d+) +(.*)`), []string{}
		for _, line := range h.codes {
			switch m := code.FindStringSubmatch(line); {
			case m != nil:
				fmt.Fprintf(&b, ".It %s\n", m[1])
				writeText(&b, m[2:])
			case strings.HasPrefix(line, " "):
				writeText(&b, []string{strings.TrimSpace(line)})
			default:
				after = append(after, line)
			}
		}
		b.WriteString(".El\n")
		if len(after) > 0 {
			b.WriteString(".Pp\n")
			writeText(&b, after)
		}
	default:
		require.Fail(t, "no such part of --help", name)
	}
	return b.String()
}

// write writes a command as an item of a list, and those below it as further ones.
func (h *help) write(b *strings.Builder) {
	words := strings.Fields(strings.TrimSuffix(h.usage, " [flags]"))[1+len(h.command):]
	fmt.Fprintf(b, ".It Cm %s", strings.Join(h.command, " "))
	if len(words) > 0 && len(h.below) == 0 {
		fmt.Fprintf(b, " Ar %s", roff(strings.Join(words, " ")))
	}
	b.WriteString("\n")
	writeText(b, h.about)
	for _, g := range h.flags {
		if g.title == "Flags" { // those of other groups are the program's own
			g.writeFlags(b)
		}
	}
	for _, g := range h.commands {
		for _, name := range g.names() {
			h.below[name].write(b)
		}
	}
}

// writeFlags writes options as a list.
func (g helpGroup) writeFlags(b *strings.Builder) {
	option := regexp.MustCompile(`^ +(?:-(\w), )?--([a-z0-9-]+)(?: (\w+))?   *(.*)$`)
	values := map[string]string{"string": "VALUE", "stringArray": "VALUE", "strings": "VALUE,...", "int": "N", "duration": "DURATION"}
	var items [][]string
	for _, line := range g.lines {
		m := option.FindStringSubmatch(line)
		switch {
		case m != nil && m[2] == "help":
			items = append(items, nil)
		case m != nil:
			item := ".It Fl "
			if m[1] != "" {
				item += m[1] + " , "
			}
			item += "-" + m[2]
			if m[3] != "" {
				value, ok := values[m[3]]
				if !ok {
					value = m[3]
				}
				item += " Ar " + value
			}
			items = append(items, []string{item, m[4]})
		case len(items) > 0 && items[len(items)-1] != nil:
			items[len(items)-1] = append(items[len(items)-1], strings.TrimSpace(line))
		}
	}
	open := false
	for _, item := range items {
		if item == nil {
			continue
		}
		if !open {
			b.WriteString(".Bl -tag -width Ds\n")
			open = true
		}
		b.WriteString(item[0] + "\n")
		writeText(b, item[1:])
	}
	if open {
		b.WriteString(".El\n")
	}
}

// writeText writes paragraphs, and indented lines as they are. A sentence begins on a line
// of its own, as mandoc wants it.
func writeText(b *strings.Builder, lines []string) {
	var words []string
	literal, between, begun := false, false, false
	flush := func() {
		at := 0
		for i, w := range words {
			if w = roff(w); at == 0 && (w[0] == '.' || w[0] == '\'') {
				w = `\&` + w
			}
			if at > 0 {
				b.WriteString(" ")
			}
			b.WriteString(w)
			at += len(w) + 1
			end := regexp.MustCompile(`[.?!][")]?$`).MatchString(w)
			if i == len(words)-1 || end || at+len(roff(words[i+1])) > 72 {
				b.WriteString("\n")
				at = 0
			}
		}
		begun = begun || len(words) > 0
		words = nil
	}
	for _, line := range lines {
		indented := strings.HasPrefix(line, " ") && line != ""
		if literal && !indented && line != "" {
			b.WriteString(".Ed\n")
			literal, between = false, true
		}
		switch {
		case line == "":
			flush()
			between = true
		case indented:
			flush()
			if !literal {
				b.WriteString(".Bd -literal -offset indent\n")
				literal, begun = true, true
			}
			b.WriteString(roff(strings.TrimPrefix(line, "  ")) + "\n")
		default:
			if between && begun && len(words) == 0 {
				b.WriteString(".Pp\n")
			}
			between = false
			words = append(words, strings.Fields(line)...)
		}
	}
	flush()
	if literal {
		b.WriteString(".Ed\n")
	}
}

// roff quotes what would be a command or another character.
func roff(text string) string {
	return strings.NewReplacer(`\`, `\e`, "--", `\-\-`, "…", "...").Replace(text)
}
