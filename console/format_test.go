package console

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/look"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "",
		"plain äöü \u65e5\u672c 🎉\n\ttext": "plain äöü \u65e5\u672c 🎉\n\ttext",
		"a\x00b\x1b[31m\r":                 "a␀b␛[31m␍",
		"\u202egnp.exe":                    "[U+202E]gnp.exe",
		"a\u2066b\u2069":                   "a[U+2066]b[U+2069]",
		"pay\u200bpal\ufeff":               "pay[U+200B]pal[U+FEFF]",
		"line\u2028sep":                    "line[U+2028]sep",
		"\x7f\u0085":                       "[U+007F][U+0085]",
		"bad \xff\xfe utf8":                `bad \xff\xfe utf8`,
		"private \ue000 \U000e0041":        "private [U+E000] [U+E0041]",
	} {
		require.Equal(t, want, visible(text), "%q", text)
	}
}

// What a receiver answered is shown as text.
func TestHostileAnswersAreText(t *testing.T) {
	t.Parallel()
	hostile := "<script>alert(1)</script>\u202e\x1b]8;;http://evil\x07</pre><svg onload=alert(1)>" + strings.Repeat("x", 16<<10)
	shown := fillForTest(t, "attempt-detail", client.Attempt{
		Status: new(200), Error: &hostile, ResponseBody: hostile,
		RequestHeaders: map[string]string{hostile: hostile}, ResponseHeaders: map[string]string{hostile: hostile},
	})
	for _, bad := range []string{"<script", "<svg", "\u202e", "\x1b", "\x07"} {
		require.NotContains(t, shown, bad)
	}
	require.Contains(t, shown, "&lt;script&gt;alert(1)&lt;/script&gt;[U&#43;202E]␛]8;;http://evil␇")
}

func TestCurlIsOneCommand(t *testing.T) {
	t.Parallel()
	made := client.Attempt{RequestHeaders: map[string]string{"X-A": "it's `id`", "authorization": "[redacted]"}}
	line := curlOf(client.Endpoint{URL: "https://a.example/x?'$(id)"}, made, `{"a":"b'c"}`)
	require.Equal(t, "curl -i -X POST 'https://a.example/x?'\\''$(id)' \\\n  -H 'authorization: [redacted]' \\\n  -H 'X-A: it'\\''s `id`' \\\n"+
		`  --data-binary '{"a":"b'\''c"}'`, line)
	require.Contains(t, curlOf(client.Endpoint{URL: "https://a.example"}, client.Attempt{}, "\x00"), "--data-binary @payload.json")
}

func TestWordsOfNumbers(t *testing.T) {
	t.Parallel()
	f := func(v float64) *float64 { return &v }
	ms := func(v int64) *int64 { return &v }
	require.Equal(t, []string{"–", "0 %", "0.1 %", "50 %", "99.9 %", "100 %"},
		[]string{percent(nil), percent(f(0)), percent(f(0.00001)), percent(f(0.5)), percent(f(0.99999)), percent(f(1))})
	require.Equal(t, []string{"–", "41 ms", "12 s"}, []string{milliseconds(nil), milliseconds(ms(41)), milliseconds(ms(12_000))})
	require.Equal(t, "6 min", milliseconds(ms(360_000)))
	require.Equal(t, []string{"0", "999", "1,000", "12,345,678", "-1,000"}, []string{count(0), count(999), count(1000), count(12345678), count(-1000)})
	for of, want := range map[float64]string{0.5: "0.5", 2: "2", 1332.3: "1,332", 10000: "10,000"} {
		said, err := rateWords(of)
		require.NoError(t, err)
		require.Equal(t, want, said)
	}
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	require.Equal(t, []string{"in 5 s", "less than 1 s ago", "2 min 3 s ago", "in 25 h", "3 days ago"}, []string{
		relative(now.Add(5*time.Second), now), relative(now, now), relative(now.Add(-123*time.Second), now), relative(now.Add(25*time.Hour), now),
		relative(now.Add(-80*time.Hour), now),
	})
}

func TestAccentIsReadable(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"#ffffff", "#000000", "#ffffff", "#000000", "#ffffff"},
		[]string{look.TextOn("#000000"), look.TextOn("#ffffff"), look.TextOn("#0b6e6e"), look.TextOn("#ffcc00"), look.TextOn("#0000ff")})
	css := string(loadAssets("#ffcc00")["console.css"].Content)
	require.Contains(t, css, "--accent:#ffcc00;--on-accent:#000000")
}

// The budgets of design and script.
func TestAssetsAreSmall(t *testing.T) {
	t.Parallel()
	all := loadAssets(look.DefaultAccent)
	require.Less(t, len(all["console.css"].Content), 15<<10)
	require.LessOrEqual(t, strings.Count(string(all["console.js"].Content), "\n"), 300)
	require.NotContains(t, string(all["console.js"].Content), "eval(")
}

func TestRatesHaveHealthyRanges(t *testing.T) {
	t.Parallel()
	r := ratesOf(client.StatsCounts{
		Attempts: map[string]int64{"delivered": 97, "http_5xx": 8}, FirstAttempts: 100, FirstDelivered: 92,
		Ended: map[string]int64{"delivered": 98, "dead_lettered": 2},
	})
	require.Equal(t, []string{"bad", "retry", "bad"}, []string{r.SuccessTone, r.RetryTone, r.DeadTone})
	require.InDelta(t, 0.98, *r.Success, 1e-9)
	require.InDelta(t, 0.08, *r.Retried, 1e-9)
	all := map[string]int64{"delivered": 100}
	r = ratesOf(client.StatsCounts{Attempts: all, FirstAttempts: 100, FirstDelivered: 100, Ended: all})
	require.Equal(t, []string{"good", "good", "good"}, []string{r.SuccessTone, r.RetryTone, r.DeadTone})
	require.False(t, ratesOf(client.StatsCounts{}).Known)
	require.Nil(t, ratesOf(client.StatsCounts{}).Success)
}
