package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"filippo.io/age"
)

// maxRecipientsFile bounds a file of recipients, in bytes.
const maxRecipientsFile = 1 << 20

// Recipients has the recipients of the encryption.
type Recipients struct {
	Names []string // age1…
	keys  []age.Recipient
	limit int
}

// RecipientError says what is wrong with an argument.
type RecipientError struct {
	Text string
	Hint string // what to do about it; may be empty
}

func (e *RecipientError) Error() string { return e.Text }

// ReadRecipients reads recipients, or files of these, as `age -r` and `age -R` take them; at
// most limit. A key that is given in the wrong place does not get into an error.
func ReadRecipients(args []string, limit int) (*Recipients, error) {
	l := &Recipients{limit: limit}
	for _, arg := range args {
		if strings.HasPrefix(arg, "AGE-SECRET-KEY-") {
			return nil, &RecipientError{"a secret key is given", "give the recipient, age1…, which age-keygen -y prints"}
		}
		if strings.HasPrefix(arg, "age1") {
			if err := l.add(arg); err != nil {
				return nil, &RecipientError{Text: fmt.Sprintf("%s: %v", arg, err)}
			}
			continue
		}
		if err := l.addFile(arg); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *Recipients) add(name string) error {
	key, err := age.ParseX25519Recipient(name)
	if err != nil {
		return errors.New("not an X25519 recipient of age (age1…)")
	}
	if name = key.String(); slices.Contains(l.Names, name) {
		return nil
	}
	if len(l.Names) == l.limit {
		return fmt.Errorf("more than %d recipients", l.limit)
	}
	l.keys, l.Names = append(l.keys, key), append(l.Names, name)
	return nil
}

func (l *Recipients) addFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return &RecipientError{err.Error(), "give a recipient, age1…, or a file of recipients"}
	}
	if !info.Mode().IsRegular() || info.Size() > maxRecipientsFile {
		return &RecipientError{Text: path + " is not a file of recipients"}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return &RecipientError{Text: err.Error()}
	}
	line, some := 0, false
	for text := range strings.Lines(string(b)) {
		line++
		name := strings.TrimSpace(text)
		if name == "" || name[0] == '#' {
			continue
		}
		some = true
		if err := l.add(name); err != nil {
			return &RecipientError{fmt.Sprintf("%s:%d: %v", path, line, err), "keys of SSH and of plugins are not supported"}
		}
	}
	if !some {
		return &RecipientError{Text: path + " has no recipient"}
	}
	return nil
}

// Seal encrypts a text to all recipients, as an age file.
func (l *Recipients) Seal(text []byte) ([]byte, error) {
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, l.keys...)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	return sealed.Bytes(), err
}
