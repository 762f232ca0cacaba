package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// block is an indented block of a document that has commands.
type block struct {
	line  int // of its first line, from 1
	text  string
	steps []step // of a block that shows output
}

// step is a command and what it prints.
type step struct{ command, output string }

// blocks finds the blocks with commands: those with a line that begins with "$ ",
// which is followed by what it prints, and those with a line that begins with
// app-gen.
func blocks(document string) []block {
	var list []block
	var current []string
	end := func(at int) {
		text := strings.TrimRight(strings.Join(current, "\n"), "\n")
		b := block{line: at - len(current), text: text}
		switch {
		case strings.HasPrefix(text, "$ "):
			for _, line := range strings.Split(text, "\n") {
				if c, ok := strings.CutPrefix(line, "$ "); ok {
					b.steps = append(b.steps, step{command: c})
					continue
				}
				last := &b.steps[len(b.steps)-1]
				if strings.HasSuffix(last.command, "\\") {
					last.command += "\n" + line
					continue
				}
				last.output += line + "\n"
			}
			list = append(list, b)
		case regexp.MustCompile(`(?m)^(ssh .*\| )?app-gen `).MatchString(text):
			list = append(list, b)
		}
		current = nil
	}
	lines := strings.Split(document, "\n")
	for i, line := range lines {
		text, indented := strings.CutPrefix(line, "    ")
		switch {
		case indented && (current != nil || i == 0 || lines[i-1] == ""):
			current = append(current, text)
		case line == "" && current != nil:
			current = append(current, "")
		case current != nil:
			end(i + 1)
		}
	}
	if current != nil {
		end(len(lines) + 1)
	}
	return list
}

// cmdDocument runs the commands of a document: document FILE. Each block runs in a
// shell of its own, in the same directory. In commands, … after app-gen stands for the
// options in the variable USUAL, of which those that the command has too are left out.
// Blocks with a line of the file skip are not run, and each line of it must be in one.
// RELEASE in the .env of shop is the number of the release that a block makes. In what a command prints, …
// stands for anything.
func cmdDocument(ts *testscript.TestScript, _ bool, args []string) {
	text, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	skip := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(readSkip(ts)), "\n") {
		skip[line] = line == ""
	}
	ran := 0
next:
	for _, b := range blocks(string(text)) {
		for line := range skip {
			if line != "" && strings.Contains(b.text, line) {
				skip[line] = true
				continue next
			}
		}
		release := "2"
		if m := regexp.MustCompile(`(?:--artifact-name|-n) \S*?-(\d+)\b`).FindStringSubmatch(b.text); m != nil {
			release = m[1]
		}
		script := "set -eu -o pipefail\n[ ! -d shop ] || printf \"# resolved on the build host\\nRELEASE='%s'\\n\" " + release + " >shop/.env\n"
		if b.steps == nil {
			script += usual(ts, b.text)
		}
		for _, s := range b.steps {
			script += "{ " + usual(ts, s.command) + "\n} 2>&1\nprintf '\\001'\n"
		}
		c := exec.Command("bash", "-c", script)
		c.Dir = ts.MkAbs(".")
		for _, name := range []string{"PATH", "HOME", "DOCKER_CONFIG", "DOCKER_HOST", "XDG_CACHE_HOME", "TMPDIR"} {
			c.Env = append(c.Env, name+"="+ts.Getenv(name))
		}
		var said strings.Builder
		c.Stdout, c.Stderr = &said, &said
		if err := c.Run(); err != nil {
			ts.Fatalf("%s:%d: %v\n%s\nsays:\n%s", args[0], b.line, err, b.text, said.String())
		}
		ran++
		ts.Logf("%s", said.String())
		printed := strings.Split(said.String(), "\x01")
		for i, s := range b.steps {
			if !like(printed[i], s.output) {
				ts.Fatalf("%s:%d: %s\nprints:\n%s\nand not:\n%s", args[0], b.line, s.command, printed[i], s.output)
			}
		}
	}
	for line, found := range skip {
		if !found {
			ts.Fatalf("%s has no block with the line %q, which is skipped", args[0], line)
		}
	}
	ts.Logf("%d blocks were run", ran)
	if fmt.Sprint(ran) != args[1] {
		ts.Fatalf("%s: %d blocks were run, not %s", args[0], ran, args[1])
	}
}

// readSkip reads the file skip of the script, if there is one.
func readSkip(ts *testscript.TestScript) string {
	b, err := os.ReadFile(ts.Getenv("WORK") + "/skip")
	if err != nil && !os.IsNotExist(err) {
		ts.Check(err)
	}
	return string(b)
}

// like compares what was printed with a text in which … stands for anything in a
// line. How wide the columns of a table are does not count.
func like(printed, want string) bool {
	spaces := func(s string) string {
		s = regexp.MustCompile(` {2,}`).ReplaceAllString(s, "  ")
		return strings.TrimSpace(regexp.MustCompile(`(?m) +$`).ReplaceAllString(s, ""))
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(spaces(want)), "…", ".*")
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(spaces(printed))
}

// usual replaces what stands for options and keys in a command.
func usual(ts *testscript.TestScript, command string) string {
	if key := ts.Getenv("AGE"); key != "" {
		command = strings.ReplaceAll(command, "age1…", key)
	}
	var options []string
	for _, o := range strings.Split(ts.Getenv("USUAL"), " --") {
		o = "--" + strings.TrimPrefix(o, "--")
		if name, _, _ := strings.Cut(o, " "); !strings.Contains(command, name+" ") {
			options = append(options, o)
		}
	}
	if strings.Contains(command, "app-gen …") && !strings.Contains(command, "--artifact-name ") {
		// It makes release 2 again, on which release 3 of an example before must not build.
		command = "rm -f shop-3*.mender\n" + command
	}
	return strings.ReplaceAll(command, "app-gen …", "app-gen "+strings.Join(options, " "))
}
