package cli

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
)

// Any text is printed on one line, without control characters.
func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "order.paid": "order.paid", "é ß 🙂": "é ß 🙂",
		"a\x1b[31mb": `a\x1b[31mb`, "a\r\n\tb": `a\r\n\tb`, "\u202eabc": `\u202eabc`, "\u009b1m": `\u009b1m`,
	} {
		require.Equal(t, want, printable.Text(text))
	}
	rapid.Check(t, func(t *rapid.T) {
		for _, r := range printable.Text(rapid.String().Draw(t, "text")) {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q is printed", r)
			}
		}
	})
}

// A payload keeps its bytes, whatever else the object contains.
func TestWithPayload(t *testing.T) {
	t.Parallel()
	require.Nil(t, withPayload(nil, nil))
	require.Equal(t, `{"payload":[1.0 ]}`, string(withPayload(nil, []byte(`[1.0 ]`))))
	require.Equal(t, `{"payload":1}`, string(withPayload([]byte(`{}`), []byte(`1`))))
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.MapOfN(rapid.StringMatching(`[a-z_<>"]{1,8}`), rapid.String(), 0, 5).Draw(t, "texts")
		delete(texts, "payload")
		raw := []byte(" " + strings.Repeat(" ", rapid.IntRange(0, 3).Draw(t, "blanks")) + `"\u00e9<&> "`)
		entries := map[string]any{}
		for name, text := range texts {
			entries[name] = text
		}
		var read map[string]json.RawMessage
		if err := json.Unmarshal(withPayload(object(entries), raw), &read); err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(read["payload"])) != strings.TrimSpace(string(raw)) {
			t.Fatalf("%s", read["payload"])
		}
		for name, text := range texts {
			var got string
			if err := json.Unmarshal(read[name], &got); text != "" && (err != nil || got != strings.ToValidUTF8(text, "\ufffd")) {
				t.Fatalf("%s: %q is %q", name, text, got)
			}
		}
	})
}

func TestInstants(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	for text, want := range map[string][2]string{ // in the future, and in the past
		"90m":                       {"2026-01-31T11:00:00Z", "2026-01-31T08:00:00Z"},
		"0s":                        {"2026-01-31T09:30:00Z", "2026-01-31T09:30:00Z"},
		"2026-02-01T00:00:00+02:00": {"2026-01-31T22:00:00Z", "2026-01-31T22:00:00Z"},
		"0001-01-01T00:00:00Z":      {"0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},
	} {
		var i instant
		require.NoError(t, i.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, [2]string{i.fromNow(now), i.ago(now)}, text)
	}
	for _, text := range []string{"", "tomorrow", "-5m", "2026-02-01", "17"} {
		require.Error(t, new(instant).UnmarshalText([]byte(text)), text)
	}
	require.Empty(t, instant{}.fromNow(now)+instant{}.ago(now), "none was given")
}

// The operator's key of the data directory is only sent to the installation of that directory.
func TestOperatorKeyIsSentToItsInstallationOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "operator.key"), []byte("secret\n"), 0o600))
	open := func(url string) (string, error) {
		s, err := (&connection{access: access{URL: url, DataDir: dir}}).open(Process{})
		if err != nil {
			return "", err
		}
		return s.key, nil
	}
	_, err := open("http://127.0.0.1:8080")
	require.ErrorContains(t, err, "operator key: "+filepath.Join(dir, "operator.key")+
		" is only sent to the installation of its data directory, which is not running")
	for listener, urls := range map[string]map[string]bool{
		"127.0.0.1:8080": {"http://127.0.0.1:8080": true, "http://localhost:8080": true, "http://127.0.0.1:8080/below": true,
			"http://127.0.0.1:8081": false, "http://127.0.0.2:8080": false, "http://[::1]:8080": false, "https://127.0.0.1:8080": false},
		"[::1]:8080":   {"http://[::1]:8080": true, "http://127.0.0.1:8080": false},
		"[::]:80":      {"http://[::1]": true, "http://localhost": true, "http://127.0.0.1:80": true, "http://127.0.0.1:81": false},
		"0.0.0.0:8080": {"http://127.0.0.1:8080": true, "http://127.0.0.9:8080": true},
		"rubbish":      {"http://127.0.0.1:8080": false},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "api.address"), []byte(listener+"\n"), 0o600))
		for url, sent := range urls {
			key, err := open(url)
			if sent {
				require.NoError(t, err, "%s at %s", url, listener)
				require.Equal(t, "secret", key)
				continue
			}
			require.ErrorContains(t, err, "is only sent to the installation of its data directory, which listens at http://"+listener, url)
			require.NotContains(t, err.Error(), "secret")
		}
	}
	key, err := open("https://everpost.example")
	require.NoError(t, err)
	require.Empty(t, key)
}

// Fields are printed in their order, with readable values.
func TestFields(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, writeFields(&b, []byte(` {"z":"text","a":17,"none":null,"empty":"","list":["a",1,true],"nothing":[],"object":{"b":[],"a":{"c":null}},
		"several":[{"id":1},{"id":2}],"esc\u001b":"\u001b","headers":{"X-Token":"canary"},"no":{}}`)))
	require.Equal(t, "z\ttext\na\t17\nnone\t-\nempty\t-\nlist\ta, 1, true\nnothing\t-\nobject\tb=- a=c=-\nseveral\tid=1\n\tid=2\n"+
		"esc\\x1b\t\\x1b\nheaders\tX-Token=…\nno\t-\n", b.String())
	for _, foreign := range []string{"", "17", "[]", "null", "{", `{"a":}`, `{"a":1`} {
		require.ErrorIs(t, writeFields(io.Discard, []byte(foreign)), client.ErrNotEverpost, foreign)
	}
}
