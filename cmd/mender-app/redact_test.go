package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecrets(t *testing.T) {
	var s redactor
	s.Add("first line of it\nsecond \"line\" <of> it\n")
	s.AddAssignments("# MODE=comment\nDB=\"hunter2 with blanks\"\nexport OTHER='swordfish'\nSHORT=abc\n")
	s.AddURL("http://user:p%40ssword@proxy:3128")
	s.AddNamed("  MYSQL_PASSWORD: fromcompose\n  - API_TOKEN=fromlist\n  image: web:1\n")
	text := `a first line of it b second "line" <of> it c hunter2 with blanks d swordfish e p@ssword f cDQwc3N3b3Jk fromcompose fromlist web:1 abc comment`
	require.Equal(t, `a [removed] b [removed] c [removed] d [removed] e [removed] f cDQwc3N3b3Jk [removed] [removed] web:1 abc comment`, s.Text(text))

	doc, err := json.Marshal(map[string]any{"error": text, "secrets": true, "url": "https://a:b@c/d", "said": "password=open; token: x", "key": "swordfish"})
	require.NoError(t, err)
	clean := s.JSON(string(doc))
	var back map[string]any
	require.NoError(t, json.Unmarshal([]byte(clean), &back), clean)
	require.Equal(t, true, back["secrets"])
	require.Equal(t, "https://[removed]@c/d", back["url"])
	require.Equal(t, "password=[removed]; token: [removed]", back["said"])
	require.Equal(t, removedSecret, back["key"])
	require.NotContains(t, clean, "second")

	for in, want := range map[string]string{
		"-----BEGIN RSA PRIVATE KEY-----\nMIIC\nxyz\n-----END RSA PRIVATE KEY-----\nnext": "[removed]\nnext",
		"-----BEGIN PRIVATE KEY-----\ncut off":                                            "[removed]",
		"key AGE-SECRET-KEY-1QQQ23 end":                                                   "key [removed] end",
		`{"TenantToken": "eyJ", "x": 1}`:                                                  `{"TenantToken": [removed], "x": 1}`,
		"Authorization: Bearer eyJhbGci.x":                                                "Authorization: [removed]",
		"nothing here: web:1":                                                             "nothing here: web:1",
	} {
		require.Equal(t, want, s.Text(in))
	}
}

func TestAssignments(t *testing.T) {
	var s redactor
	keep := func(key string) bool { return key == "log_level" || key == "target" }
	got := s.Assignments("# old = \"x\"\nlog_level = \"debug\" # why\n\nTARGET=registry://u:pw@h/p\ncommand = \"get --pin 1234\"\nlist = [\n  \"more\",\n]\n[[keys]]\nfile = \"a\"\n", keep)
	require.Equal(t, "log_level = \"debug\"\nTARGET = registry://[removed]@h/p\ncommand = [removed]\nlist = [removed]\n[removed]\n[removed]\n[[keys]]\nfile = [removed]\n", got)

	// A password that was not escaped.
	for in, want := range map[string]string{
		"registry://u:p/w@h/p":         "registry://[removed]@h/p",
		"registry://u:p@w@h/p":         "registry://[removed]@h/p",
		"'registry://u:p w \"x@h/p'":   "'registry://[removed]@h/p'",
		"registry+http://h/p":          "registry+http://h/p",
		"containerd":                   "containerd",
		"registry://u:p%zz@h:5000/p/q": "registry://[removed]@h:5000/p/q",
	} {
		require.Equal(t, "target = "+want+"\n", s.Assignments("target="+in+"\n", keep))
	}
}
