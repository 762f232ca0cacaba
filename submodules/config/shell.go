package config

import (
	"errors"
	"fmt"
	"strings"
)

// parseShell reads text as assignments. shape says whether every line that is not
// empty or a comment at least begins like an assignment, without blanks around the =.
func (f *File) parseShell(text string) (shape bool, err error) {
	shape = true
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimSuffix(line, "\r"))
		if line == "" || line[0] == '#' {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "export"); ok && rest != "" && (rest[0] == ' ' || rest[0] == '\t') {
			line = strings.TrimSpace(rest)
		}
		key, rest, ok := strings.Cut(line, "=")
		if !ok || !isName(key) || (rest != "" && (rest[0] == ' ' || rest[0] == '\t')) {
			shape = false
			if err == nil {
				err = f.at(i, errors.New("not an assignment NAME=value"))
			}
			continue
		}
		value, werr := shellWord(rest)
		if werr != nil {
			if err == nil {
				err = f.at(i, fmt.Errorf("%s: %w", key, werr))
			}
			continue
		}
		f.set(key, value, i+1)
	}
	return shape, err
}

func (f *File) at(i int, err error) error { return &Error{Name: f.name, Line: i + 1, Err: err} }

func isName(s string) bool {
	for i, r := range s {
		switch {
		case r == '_', 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
		case '0' <= r && r <= '9' && i > 0:
		default:
			return false
		}
	}
	return s != ""
}

// shellWord returns what a POSIX shell would assign for the word at the
// beginning of s; only blanks and a comment may follow it. Anything a shell would
// run, expand or match is an error.
func shellWord(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\'':
			end := strings.IndexByte(s[i+1:], '\'')
			if end < 0 {
				return "", errors.New("a quote is not closed")
			}
			b.WriteString(s[i+1 : i+1+end])
			i += end + 1
		case '"':
			n, err := doubleQuoted(&b, s[i+1:])
			if err != nil {
				return "", err
			}
			i += n
		case '\\':
			if i+1 == len(s) {
				return "", errors.New("continued lines are not supported")
			}
			i++
			b.WriteByte(s[i])
		case ' ', '\t':
			rest := strings.TrimLeft(s[i:], " \t")
			if rest == "" || rest[0] == '#' {
				return b.String(), nil
			}
			return "", errors.New("a value with a blank must be quoted")
		case '$', '`':
			return "", errors.New("expansions are not supported; write the value itself")
		case ';', '&', '|', '<', '>', '(', ')':
			return "", fmt.Errorf("%q must be quoted", string(c))
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

// doubleQuoted writes the text before the closing quote in s, and returns the length
// including the quote.
func doubleQuoted(b *strings.Builder, s string) (int, error) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return i + 1, nil
		case '$', '`':
			return 0, errors.New("expansions are not supported; write the value itself")
		case '\\':
			if i+1 < len(s) && strings.IndexByte("$`\"\\", s[i+1]) >= 0 {
				i++
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return 0, errors.New("a quote is not closed")
}

// Words splits a value into the words of a command: at blanks, with single and
// double quotes and backslashes as in a shell, and nothing expanded.
func Words(value string) ([]string, error) {
	var words []string
	for {
		value = strings.TrimLeft(value, " \t")
		if value == "" {
			return words, nil
		}
		end, err := wordEnd(value)
		if err != nil {
			return nil, err
		}
		w, err := shellWord(value[:end])
		if err != nil {
			return nil, err
		}
		words = append(words, w)
		value = value[end:]
	}
}

// wordEnd returns the index of the first blank outside quotes.
func wordEnd(s string) (int, error) {
	var quote byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			} else if c == '\\' && quote == '"' {
				i++
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '\\':
			i++
		case c == ' ' || c == '\t':
			return i, nil
		}
	}
	if quote != 0 {
		return 0, errors.New("a quote is not closed")
	}
	return len(s), nil
}
