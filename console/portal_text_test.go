package console

import (
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/explain"
)

func readTexts(t *testing.T, name string) catalogue {
	t.Helper()
	content, err := textFiles.ReadFile("texts/" + name + ".json")
	require.NoError(t, err)
	all, err := readCatalogue(content)
	require.NoError(t, err)
	return all
}

// Both languages have the same keys, the same placeholders and the same kinds of texts, and no text has markup.
func TestTextsAreComplete(t *testing.T) {
	t.Parallel()
	english := readTexts(t, "en")
	for _, name := range reviewedLanguages() {
		of := readTexts(t, name)
		require.ElementsMatch(t, slices.Collect(maps.Keys(english)), slices.Collect(maps.Keys(of)), name)
		for key, forms := range of {
			require.Equal(t, placeholders(english[key]["other"]), placeholders(forms["other"]), "%s: %s", name, key)
			require.ElementsMatch(t, slices.Collect(maps.Keys(english[key])), slices.Collect(maps.Keys(forms)), "%s: %s", name, key)
			for form, text := range forms {
				require.NotRegexp(t, `[<>]|&[a-z#]`, text, "%s: %s", name, key)
				require.Equal(t, strings.TrimSpace(text), text, "%s: %s", name, key)
				require.NotContains(t, strings.ToLower(text), "everpost", "%s: %s", name, key)
				for _, found := range placeholders(text) {
					require.Contains(t, placeholders(forms["other"]), found, "%s: %s %s", name, key, form)
				}
			}
		}
	}
	german := readTexts(t, "de")
	same := 0
	for key, forms := range english {
		if german[key]["other"] == forms["other"] {
			same++
		}
	}
	require.Less(t, same, 20, "too many texts are not translated")
}

// An endpoint whose server does not answer is disabled, too: what is said of it holds for that.
func TestTextsOfEndpointsThatFail(t *testing.T) {
	t.Parallel()
	for _, name := range reviewedLanguages() {
		of := readTexts(t, name)
		for _, key := range []string{"code.endpoint_disabled", "code.endpoint_circuit_open", "code.endpoint_circuit_half_open"} {
			require.NotRegexp(t, `refused|abgelehnt|gestört`, of[key]["other"], "%s: %s", name, key)
		}
	}
	german := readTexts(t, "de")
	require.Contains(t, german["field.event_types"]["other"], "Mindestens ein Eintrag ist kein gültiger Ereignistyp.")
	require.Contains(t, german["field.filter.payload"]["other"], "Eine Nachricht hat kein Feld „{place}“ außerhalb ihres Inhalts.")
}

// A message that is not sent any more has one name in everything that is said of it, and an attempt is never called as it is.
func TestWhatFailedHasOneName(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ word, others, attempts string }{
		"en": {`(?i)\bfailed\b`, `(?i)dead.?letter|given? up|abandoned|undeliverable`, "failed attempts"},
		"de": {`(?i)\bfehlgeschlagen`, `(?i)dead.?letter|aufgegeben|unzustellbar|gescheitert`, "Fehlversuche"},
	} {
		all := readTexts(t, name)
		for _, key := range []string{
			"nav.failed", "column.failed", "state.failed", "count.failed", "failed.lead", "failed.none", "failed.send_all.question.uncounted",
			"code.refused", "code.exhausted", "code.expired", "code.failed_internally", "code.terminated", "code.discarded",
		} {
			require.Regexp(t, of.word, all[key]["other"], "%s: %s", name, key)
		}
		for key, forms := range all {
			require.NotRegexp(t, of.others, forms["other"], "%s: %s", name, key)
		}
		for _, key := range []string{"chart.hour", "chart.label", "legend.failed", "figure.failed"} {
			require.Contains(t, strings.ToLower(all[key]["other"]), strings.ToLower(of.attempts), "%s: %s", name, key)
		}
	}
}

// Every code of an explanation has a sentence, and every text that a template or a handler names exists.
func TestEveryTextExists(t *testing.T) {
	t.Parallel()
	english := readTexts(t, "en")
	for _, code := range explain.Codes() {
		require.Contains(t, english, "code."+string(code))
	}
	for _, condition := range explain.ConditionCodes() {
		require.Contains(t, english, "condition."+string(condition))
	}
	names := regexp.MustCompile(`\.Say "([^"]+)"`)
	files, err := portalFiles.ReadDir("templates/portal")
	require.NoError(t, err)
	for _, f := range files {
		text, err := portalFiles.ReadFile("templates/portal/" + f.Name())
		require.NoError(t, err)
		for _, found := range names.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, english, found[1], f.Name())
		}
	}
}

func chosen(t *testing.T, wanted, accepted string, further map[string][]byte) *texts {
	t.Helper()
	l, err := readLanguages(further)
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/portal/", nil)
	r.Header.Set("Accept-Language", accepted)
	return l.choose(r, wanted)
}

func TestLanguageIsTheLinksOrTheBrowsers(t *testing.T) {
	t.Parallel()
	french := map[string][]byte{"fr": []byte(`{"close": "Fermer", "count.sent": {"one": "{count} envoyé", "other": "{count} envoyés"}}`)}
	for _, test := range []struct{ wanted, accepted, lang string }{
		{"", "", "en"}, {"de", "en", "de"}, {"de-AT", "", "de"}, {"", "de-CH,en;q=0.5", "de"}, {"", "ja, fr;q=0.5", "fr"}, {"ja", "de", "de"},
		{"", strings.Repeat("de,", 1000), "en"}, {"", "; nonsense", "en"},
	} {
		require.Equal(t, test.lang, chosen(t, test.wanted, test.accepted, french).Lang, "%+v", test)
	}
	f := chosen(t, "fr", "", french)
	require.False(t, f.Reviewed)
	require.Equal(t, "Fermer", f.say("close"))
	require.Equal(t, "0 envoyé", f.say("count.sent", "count", 0), "in French, 0 is singular")
	require.Equal(t, "Endpoints", f.say("nav.endpoints"), "what is not translated is English")
}

func TestNumbersAndTimesAreOfTheLanguage(t *testing.T) {
	t.Parallel()
	en, de := chosen(t, "en", "", nil), chosen(t, "de", "", nil)
	at := time.Date(2026, 11, 24, 12, 3, 4, 0, time.UTC)
	require.Equal(t, []string{"12,345", "12.345"}, []string{en.Number(12345), de.Number(12345)})
	require.Equal(t, []string{"Nov 24, 2026, 12:03:04 UTC", "24. Nov. 2026, 12:03:04 UTC"}, []string{en.Instant(at), de.Instant(at)})
	for share, want := range map[float64][2]string{1: {"100%", "100\u00a0%"}, 0.99999: {"99.9%", "99,9\u00a0%"},
		0.00001: {"0.1%", "0,1\u00a0%"}, 0: {"0%", "0\u00a0%"}} {
		require.Equal(t, want, [2]string{en.Percent(&share), de.Percent(&share)})
	}
	require.Equal(t, "–", en.Percent(nil))
	for d, want := range map[time.Duration][2]string{
		time.Second: {"in a moment", "gleich"}, time.Minute: {"in 1 minute", "in 1 Minute"}, -2 * time.Hour: {"2 hours ago", "vor 2 Stunden"},
		-72 * time.Hour: {"3 days ago", "vor 3 Tagen"}, 0: {"just now", "gerade eben"},
	} {
		require.Equal(t, want, [2]string{en.Relative(at.Add(d), at), de.Relative(at.Add(d), at)})
	}
	require.Equal(t, "Delete a[U+202E]b{name}?", en.say("endpoint.delete.question", "name", "a\u202eb{name}"), "what comes from outside is not a text")
}

func TestCataloguesAreChecked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, content, says string }{
		{"fr", `[]`, "not a JSON object"}, {"fr", `{"close": "<b>Fermer</b>"}`, "without markup"},
		{"fr", `{"closed": "Fermer"}`, "is not a text of the portal"},
		{"fr", `{"close": "Fermer {name}"}`, "{name}"}, {"fr", `{"close": 1}`, "must be a text"}, {"fr", `{"close": {"one": "x"}}`, `no text for "other"`},
		{"fr", `{"close": {"each": "x", "other": "y"}}`, "plural form"}, {"fr", `{"close": "a\u202eb"}`, "control characters"},
		{"not a tag", `{}`, "not a language tag"}, {"de", `{}`, "has this language itself"},
		{"fr", `{"close": "` + strings.Repeat("x", maxText+1) + `"}`, "at most"},
		{"fr", `{"close": "` + strings.Repeat("x", MaxCatalogue) + `"}`, "more than 256 KiB"},
	} {
		require.ErrorContains(t, CheckCatalogues(map[string][]byte{test.name: []byte(test.content)}), test.says, "%.60s", test.content)
	}
	many := map[string][]byte{}
	for i := range MaxCatalogues + 1 {
		many[string(rune('a'+i/26))+string(rune('a'+i%26))] = []byte(`{}`)
	}
	require.ErrorContains(t, CheckCatalogues(many), "more than 32")
	require.NoError(t, CheckCatalogues(nil))
}
