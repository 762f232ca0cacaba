package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
)

// Migrate converts the old release's data for the new release while the application is
// stopped: with the hook migrate, or with a command in a container of the new release.
// The zero value does nothing. In app.toml, Hook is a text and the other fields are a
// table.
type Migrate struct {
	Hook    string   `toml:"-" json:"-"` // MigrateFile
	Service string   `toml:"service" json:"service,omitzero"`
	Command []string `toml:"command" json:"command,omitzero"`
	// Timeout limits the command; "" is DefaultHookTimeout.
	Timeout string `toml:"timeout" json:"timeout,omitzero"`
}

// MigrateFile is the only text data.migrate may have: the hook's file in the
// manifests.
const MigrateFile = HooksDir + "/" + HookMigrate

// Bounds of the command of data.migrate.
const (
	maxCommand = 32      // words
	maxWord    = 4 << 10 // bytes of a word
)

// IsZero reports whether the data is not migrated.
func (m Migrate) IsZero() bool { return m.Hook == "" && !m.runs() && m.Timeout == "" }

// runs reports whether a command migrates the data.
func (m Migrate) runs() bool { return m.Service != "" || len(m.Command) > 0 }

// Limit returns how long the command may take.
func (m Migrate) Limit() time.Duration { return Hook{Timeout: m.Timeout}.Limit() }

// MarshalJSON implements json.Marshaler.
func (m Migrate) MarshalJSON() ([]byte, error) {
	if m.Hook != "" {
		return json.Marshal(m.Hook)
	}
	type table Migrate
	return json.Marshal(table(m))
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Migrate) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &m.Hook)
	}
	type table Migrate
	return json.Unmarshal(data, (*table)(m))
}

// UnmarshalTOML implements toml.Unmarshaler.
func (m *Migrate) UnmarshalTOML(v any) error {
	text, err := json.Marshal(v) // a valid table has only texts and lists of texts
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, m); err != nil {
		return fmt.Errorf("data.migrate is neither a text nor a table with the texts service and timeout and the list command")
	}
	return nil
}

// Migrates reports whether a command in a container of the new release migrates the data.
func (p *Policy) Migrates() bool { return p != nil && p.Data.Migrate.runs() }

func (p *Policy) checkMigrate() error {
	const key = "data.migrate"
	m := p.Data.Migrate
	hook, hooked := p.Hook(HookMigrate)
	switch {
	case m.Hook != "" && m.Hook != MigrateFile:
		return bad(key, "%q is not %s", clip.Text(m.Hook), MigrateFile)
	case (!m.IsZero() || hooked) && !p.Data.Snapshot:
		return bad(key, "without a copy a rollback is impossible: set snapshot = true")
	case m.runs() && hooked:
		return bad(key, "it is a command, and a table [[hooks]] has the name %s: use only one of them", HookMigrate)
	case (m.Hook != "") != hooked:
		return bad(key, "it is %s, and a table [[hooks]] has the name %s: write both or neither", MigrateFile, HookMigrate)
	case hook.AllowFailure || hook.Retries > 0:
		return bad(key, "the hook %s may neither fail nor be repeated: it begins with the data of the old release, once", HookMigrate)
	case m.Hook != "" || m.IsZero():
		return nil
	}
	if err := checkService(key+".service", m.Service); err != nil {
		return err
	}
	if len(m.Command) == 0 || len(m.Command) > maxCommand {
		return bad(key+".command", "%d words; it must have from 1 to %d", len(m.Command), maxCommand)
	}
	if i := slices.IndexFunc(m.Command, func(word string) bool { return len(word) > maxWord || !printable(word) }); i >= 0 {
		return bad(fmt.Sprintf("%s.command[%d]", key, i), "longer than %d bytes, or a character that cannot be printed", maxWord)
	}
	return checkTimeout(key+".timeout", m.Timeout)
}
