package console

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/programtest"
	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/webhook"
)

// verification is what a program is asked.
type verification struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Secret  string            `json:"secret"`
}

// harness is how a program of the page is called: it is asked on standard input, and prints true or false for each question.
type harness struct {
	program, inPackage string // what runs it, and Debian's package of that
	file, after        string
	args               []string // before the file
	edit               func(program string) string
}

func harnesses() map[string]harness {
	return map[string]harness{
		"go": {
			program: "go", inPackage: "golang", file: "main.go",
			after: `
func main() {
	var all []struct {
		Headers      map[string]string
		Body, Secret string
	}
	if err := json.NewDecoder(os.Stdin).Decode(&all); err != nil {
		panic(err)
	}
	for _, q := range all {
		h := http.Header{}
		for name, value := range q.Headers {
			h.Set(name, value)
		}
		fmt.Println(Verify(h, []byte(q.Body), q.Secret))
	}
}
`,
			edit: func(program string) string {
				return strings.NewReplacer("package webhook", "package main", "import (", "import (\n\t\"encoding/json\"\n\t\"fmt\"\n\t\"os\"").Replace(program)
			},
			args: []string{"run"},
		},
		"typescript": {
			program: "node", inPackage: "nodejs", file: "verify.mjs",
			after: `
import { readFileSync } from "node:fs";
for (const q of JSON.parse(readFileSync(0, "utf8"))) {
  const lower = Object.fromEntries(Object.entries(q.headers).map(([name, value]) => [name.toLowerCase(), value]));
  console.log(verify(lower, Buffer.from(q.body), q.secret));
}
`,
			edit: func(program string) string { // without the types: not every Node.js leaves them out itself
				return strings.NewReplacer(
					"import type { IncomingHttpHeaders } from \"node:http\";\n", "",
					": IncomingHttpHeaders", "", ": Buffer", "", ": string", "", ": boolean", "",
				).Replace(program)
			},
		},
		"python": {
			program: "python3", inPackage: "python3", file: "verify.py",
			after: `
import json, sys
for q in json.load(sys.stdin):
    print(str(verify(q["headers"], q["body"].encode(), q["secret"])).lower())
`,
		},
		"php": {
			program: "php", inPackage: "php-cli", file: "verify.php",
			after: `
foreach (json_decode(stream_get_contents(STDIN), true) as $q) {
    echo verify($q['headers'], $q['body'], $q['secret']) ? "true\n" : "false\n";
}
`,
		},
		"ruby": {
			program: "ruby", inPackage: "ruby", file: "verify.rb",
			after: `
require "json"
JSON.parse($stdin.read).each { |q| puts verify(q["headers"], q["body"], q["secret"]) ? "true" : "false" }
`,
		},
	}
}

// questions are requests as deliveries sign them, and what a receiver has to say to each.
func questions(t *testing.T, scheme string) (all []verification, want []bool) {
	t.Helper()
	const body = `{"order": 17, "note": "ä / 😀"}`
	secret, old := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	verifies, other := secret, old
	if scheme == webhook.SignatureV1a {
		secret = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
		verifies, other = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=", "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
	}
	ask := func(headers map[string]string, text, with string, fits bool) {
		all, want = append(all, verification{headers, text, with}), append(want, fits)
	}
	if scheme == "hex" {
		parsed, err := signature.ParseSecret(secret)
		require.NoError(t, err)
		of := func(text string) map[string]string {
			header, err := signature.SignHex([]byte(text), parsed)
			require.NoError(t, err)
			return map[string]string{"X-Webhook-Signature": header}
		}
		ask(of(body), body, verifies, true)
		ask(of(body), body+" ", verifies, false)
		ask(of(body), body, other, false)
		ask(map[string]string{}, body, verifies, false)
		return all, want
	}
	signed := func(at time.Time, text string, secrets ...string) map[string]string {
		var parsed []signature.Secret
		for _, s := range secrets {
			one, err := signature.ParseSecret(s)
			require.NoError(t, err)
			parsed = append(parsed, one)
		}
		return map[string]string{
			"webhook-id": "evt_1", "webhook-timestamp": strconv.FormatInt(at.Unix(), 10),
			"webhook-signature": signature.Sign("evt_1", at, []byte(text), parsed...),
		}
	}
	now := time.Now()
	ask(signed(now, body, secret), body, verifies, true)
	ask(signed(now, body, old, secret), body, verifies, true)
	ask(signed(now, body, secret), body+" ", verifies, false)
	ask(signed(now, body, secret), body, other, false)
	ask(signed(now.Add(-time.Hour), body, secret), body, verifies, false)
	ask(signed(now.Add(time.Hour), body, secret), body, verifies, false)
	ask(map[string]string{}, body, verifies, false)
	garbage := signed(now, body, secret)
	garbage["webhook-signature"] = "v1 v1a v1,v1a, x,y v1a,AAAA"
	ask(garbage, body, verifies, false)
	return all, want
}

// The programs that the portal shows verify real signatures, and nothing else.
func TestProgramsVerify(t *testing.T) {
	t.Parallel()
	for _, l := range programLanguages() {
		for _, scheme := range []string{"v1", "v1a", "hex"} {
			t.Run(l.Name+" "+scheme, func(t *testing.T) {
				t.Parallel()
				h := harnesses()[l.Code]
				path := programtest.Find(t, h.program, h.inPackage)
				if l.Code == "python" && scheme == "v1a" {
					path = programtest.FindPython(t, "cryptography", "python3-cryptography")
				}
				program, err := verifyFiles.ReadFile("verify/" + scheme + "." + l.file + ".txt")
				require.NoError(t, err)
				text := string(program)
				if h.edit != nil {
					text = h.edit(text)
				}
				file := filepath.Join(t.TempDir(), h.file)
				require.NoError(t, os.WriteFile(file, []byte(text+h.after), 0o600))
				all, want := questions(t, scheme)
				asked, err := json.Marshal(all)
				require.NoError(t, err)
				command := exec.CommandContext(t.Context(), path, append(h.args, file)...)
				command.Stdin = bytes.NewReader(asked)
				var out, problems bytes.Buffer
				command.Stdout, command.Stderr = &out, &problems
				require.NoError(t, command.Run(), problems.String())
				var answers []bool
				for line := range strings.FieldsSeq(out.String()) {
					answers = append(answers, line == "true")
				}
				require.Equal(t, want, answers)
			})
		}
	}
}
