package console

import (
	"html"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/look"
	"github.com/everpost/everpost/internal/webhook"
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
}

// A time in a table is as far away as in a sentence: what is to come is rounded up, what is past down.
func TestTablesRoundAsSentencesDo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	templates, err := parseTemplates(func() time.Time { return now })
	require.NoError(t, err)
	for away, want := range map[time.Duration]string{
		5 * time.Second: "in 5 s", 0: "0 s ago", -123 * time.Second: "2 min ago", 10*time.Minute + 5*time.Second: "in 11 min",
		-10*time.Minute - 55*time.Second: "10 min ago", 25 * time.Hour: "in 25 h", -80 * time.Hour: "3 days ago",
	} {
		at := now.Add(away)
		var table, since strings.Builder
		require.NoError(t, templates.ExecuteTemplate(&table, "ago", at))
		require.Contains(t, table.String(), ">"+want+"</time>")
		if away < 0 {
			require.NoError(t, templates.ExecuteTemplate(&since, "since", at))
			require.Contains(t, since.String(), ">"+strings.TrimSuffix(want, " ago")+"</time>")
		}
	}
	health := webhook.Health{Observed: webhook.Observation{BlockedUntil: now.Add(10*time.Minute + 5*time.Second)}}
	require.Contains(t, explain.Endpoint(&health, now).Summary, "next request in 11 min")
}

// Each class of outcomes that has attempts is in the legend by its own name and colour, and in no other's bars.
func TestTheLegendHasEachClass(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	keys := regexp.MustCompile(`<rect class="key (c-\w+)"[^>]*/><text [^>]*>([^<]+)</text>`)
	drawn := func(classes ...webhook.OutcomeClass) (names, colours map[string]string, svg string) {
		attempts := map[string]int64{}
		for _, class := range classes {
			attempts[class.String()] = 3
		}
		at := client.Time{Time: now}
		s := client.Stats{Since: at, Data: []client.StatsPoint{{At: at, StatsCounts: client.StatsCounts{Attempts: attempts}}}}
		svg = string(drawOutcomes(s, time.Minute, 2))
		names, colours = map[string]string{}, map[string]string{}
		for _, found := range keys.FindAllStringSubmatch(svg, -1) {
			names[found[2]], colours[found[1]] = found[1], found[2]
		}
		return names, colours, svg
	}
	for _, class := range webhook.OutcomeClasses() {
		names, _, svg := drawn(class)
		require.Len(t, names, 1, class)
		for _, colour := range names {
			require.Contains(t, svg, `<rect class="bar `+colour+`"`, class)
		}
	}
	names, colours, svg := drawn(webhook.OutcomeClasses()...)
	require.Len(t, names, len(webhook.OutcomeClasses()))
	require.Len(t, colours, len(webhook.OutcomeClasses()), "no two have the same colour")
	require.Contains(t, svg, "TLS: 1.5 on average")
	require.Empty(t, string(drawOutcomes(client.Stats{}, time.Minute, 2)), "without attempts there is no chart")
	css := string(loadAssets(look.DefaultAccent)["console.css"].Content)
	for colour := range colours {
		require.Contains(t, css, "."+colour+"{fill:var(--")
	}
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
	require.Equal(t, []string{"bad", "retry", "bad"}, []string{r.SuccessTone, r.FailedTone, r.DeadTone})
	require.InDelta(t, 0.98, *r.Success, 1e-9)
	require.InDelta(t, 0.08, *r.Failed, 1e-9)
	all := map[string]int64{"delivered": 100}
	r = ratesOf(client.StatsCounts{Attempts: all, FirstAttempts: 100, FirstDelivered: 100, Ended: all})
	require.Equal(t, []string{"good", "good", "good"}, []string{r.SuccessTone, r.FailedTone, r.DeadTone})
	require.False(t, ratesOf(client.StatsCounts{}).Known)
	require.Nil(t, ratesOf(client.StatsCounts{}).Success)

	refused := ratesOf(client.StatsCounts{Attempts: map[string]int64{"http_4xx": 3}, FirstAttempts: 3, Ended: map[string]int64{"dead_lettered": 3}})
	require.InDelta(t, 1, *refused.Failed, 1e-9, "their first attempts failed, and none was repeated")
	require.Nil(t, refused.P50, "nothing is said where nothing is known")
	delivered := ratesOf(client.StatsCounts{Attempts: map[string]int64{"delivered": 2}, Ended: map[string]int64{"delivered": 2}})
	require.Nil(t, delivered.Failed, "there was no first attempt of which it would be a share")
}

// A number and its noun agree.
func TestCounted(t *testing.T) {
	t.Parallel()
	for want, of := range map[string]struct {
		n    any
		noun string
	}{
		"1 delivery": {1, "delivery"}, "0 deliveries": {0, "delivery"}, "2,000 dead letters": {int64(2000), "dead letter"}, "1 tenant": {int64(1), "tenant"},
	} {
		got, err := counted(of.n, of.noun)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := counted("one", "delivery")
	require.Error(t, err)
}

// countedNoun is a number with a noun in the plural, whatever the number is.
var countedNoun = regexp.MustCompile(`\{\{(count|len|\.[A-Z]\w*|\$[\w.]+)[^}]*\}\} (more )?` +
	`(deliveries|dead letters|endpoints|tenants|events|attempts|retries|requests|rows|bytes|problems|` +
	`warnings|examples|groups|keys|channels|replays|times)\b`)

// No template counts without a rule for one.
func TestTemplatesCountWithARule(t *testing.T) {
	t.Parallel()
	require.Regexp(t, countedNoun, `{{count .N}} deliveries`)
	names, err := fs.Glob(templateFiles, "templates/*.html")
	require.NoError(t, err)
	for _, name := range names {
		text, err := templateFiles.ReadFile(name)
		require.NoError(t, err)
		require.NotRegexp(t, countedNoun, string(text), name)
	}
}

// A URL breaks after its separators, never at its last letter, and is escaped.
func TestBreakable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://a.example/hook":                       "https://a.<wbr>example/hook",
		"https://hooks.example.com/v1/customers/new":   "https://hooks.<wbr>example.com/<wbr>v1/customers/new",
		"http://127.0.0.1:8080/hooks/order":            "http://127.0.0.1:8080/<wbr>hooks/order",
		"https://a.example/<script>":                   "https://a.<wbr>example/&lt;script&gt;",
		"https://a.example/" + strings.Repeat("x", 30): "https://a.<wbr>example/xxxxxxxxxxxxxxxx<wbr>xxxxxxxxxxxxxx",
	} {
		require.Equal(t, `<span class="url">`+want+`</span>`, string(breakable(text, 300)), text)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`https://[a-z./?&=-]{1,120}`).Draw(t, "url")
		parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(string(breakable(text, 300)), `<span class="url">`), `</span>`), "<wbr>")
		if html.UnescapeString(strings.Join(parts, "")) != text {
			t.Fatalf("%s is not %s", parts, text)
		}
		for _, part := range parts {
			if len(html.UnescapeString(part)) > longestPart+shortestRest {
				t.Fatalf("%s cannot be broken", part)
			}
		}
		if len(parts) > 1 && len(html.UnescapeString(parts[len(parts)-1])) < shortestRest {
			t.Fatalf("%s breaks at its end", text)
		}
	})
}

// An endpoint is called by its description, or by its URL without the scheme.
func TestNameOr(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, "Warehouse &lt;b&gt;", nameOr("Warehouse <b>\nin Bonn", "https://a.example"))
	require.EqualValues(t, `<span class="url">a.example/x</span>`, nameOr(" ", "https://a.example/x"))
}
