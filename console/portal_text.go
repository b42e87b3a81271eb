package console

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	format "golang.org/x/text/number"
)

//go:embed texts/*.json
var textFiles embed.FS

// Bounds of an operator's catalogues.
const (
	MaxCatalogues = 32
	MaxCatalogue  = 256 << 10 // bytes of one
	maxText       = 2000      // bytes of one text
)

// reviewedLanguages are those of the texts that Everpost has. The first one has the texts that a catalogue lacks.
func reviewedLanguages() []string { return []string{"en", "de"} }

// catalogue has the texts of a language by their keys: for each form of a plural (CLDR's names), or under "other" only. A text has
// placeholders, {name}, and is never markup.
type catalogue map[string]map[string]string

// texts are the portal's texts in one language.
type texts struct {
	Lang     string
	Reviewed bool // by Everpost; else an operator's
	tag      language.Tag
	printer  *message.Printer
	all      catalogue
	fallback catalogue
}

var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// readCatalogue reads a file: an object with a text, or an object of plural forms, for each key.
func readCatalogue(content []byte) (catalogue, error) {
	if len(content) > MaxCatalogue {
		return nil, fmt.Errorf("it has more than %d KiB", MaxCatalogue>>10)
	}
	var raw map[string]any
	if err := json.Unmarshal(content, &raw); err != nil {
		return nil, fmt.Errorf("it is not a JSON object: %w", err)
	}
	all := catalogue{}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		forms, err := readForms(raw[key])
		if err != nil {
			return nil, fmt.Errorf("%q %w", key, err)
		}
		all[key] = forms
	}
	return all, nil
}

func readForms(value any) (map[string]string, error) {
	forms := map[string]string{}
	switch v := value.(type) {
	case string:
		forms["other"] = v
	case map[string]any:
		for form, of := range v {
			text, ok := of.(string)
			if !ok || !slices.Contains([]string{"zero", "one", "two", "few", "many", "other"}, form) {
				return nil, errors.New("has a plural form that is none of zero, one, two, few, many and other, or no text")
			}
			forms[form] = text
		}
	default:
		return nil, errors.New("must be a text or an object of plural forms")
	}
	if forms["other"] == "" {
		return nil, errors.New(`has no text for "other"`)
	}
	for _, text := range forms {
		if strings.ContainsAny(text, "<>") || strings.ContainsFunc(text, odd) || len(text) > maxText {
			return nil, fmt.Errorf("must be text without markup and control characters, of at most %d bytes", maxText)
		}
	}
	return forms, nil
}

// placeholders are those of a text, sorted and each once.
func placeholders(text string) []string {
	found := placeholder.FindAllString(text, -1)
	slices.Sort(found)
	return slices.Compact(found)
}

// fits checks an operator's catalogue against the texts that it translates.
func (c catalogue) fits(of catalogue) error {
	for _, key := range slices.Sorted(maps.Keys(c)) {
		original, known := of[key]
		if !known {
			return fmt.Errorf("%q is not a text of the portal", key)
		}
		for _, text := range c[key] {
			for _, name := range placeholders(text) {
				if !strings.Contains(original["other"], name) {
					return fmt.Errorf("%q has the placeholder %s, which the English text lacks", key, name)
				}
			}
		}
	}
	return nil
}

// languages are all languages of the portal.
type languages struct {
	matcher language.Matcher
	all     []*texts // in the order of the matcher
}

// readLanguages reads the texts that Everpost has, and an operator's catalogues by their language tags.
func readLanguages(further map[string][]byte) (*languages, error) {
	if len(further) > MaxCatalogues {
		return nil, fmt.Errorf("there are more than %d catalogues", MaxCatalogues)
	}
	l := &languages{}
	var fallback catalogue
	var tags []language.Tag
	add := func(name string, content []byte, reviewed bool) error {
		tag, err := language.Parse(name)
		if err != nil {
			return fmt.Errorf("%q is not a language tag", name)
		}
		all, err := readCatalogue(content)
		if err != nil {
			return err
		}
		if fallback == nil {
			fallback = all
		}
		if err := all.fits(fallback); err != nil {
			return err
		}
		tags = append(tags, tag)
		l.all = append(l.all, &texts{Lang: tag.String(), Reviewed: reviewed, tag: tag, printer: message.NewPrinter(tag), all: all, fallback: fallback})
		return nil
	}
	for _, name := range reviewedLanguages() {
		content, err := textFiles.ReadFile("texts/" + name + ".json")
		if err != nil {
			return nil, fmt.Errorf("read the texts: %w", err)
		}
		if err := add(name, content, true); err != nil {
			return nil, fmt.Errorf("texts in %s: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(further)) {
		if slices.Contains(reviewedLanguages(), name) {
			return nil, fmt.Errorf("catalogue %s.json: Everpost has this language itself", name)
		}
		if err := add(name, further[name], false); err != nil {
			return nil, fmt.Errorf("catalogue %s.json: %w", name, err)
		}
	}
	l.matcher = language.NewMatcher(tags)
	return l, nil
}

// maxAccepted is how much of an Accept-Language is looked at.
const maxAccepted = 1 << 10

// choose returns the texts in the first of the wanted languages that there is, or else in the one that the browser likes best.
func (l *languages) choose(r *http.Request, wanted ...string) *texts {
	if accepted := r.Header.Get("Accept-Language"); len(accepted) <= maxAccepted {
		wanted = append(wanted, accepted)
	}
	_, i := language.MatchStrings(l.matcher, wanted...)
	return l.all[i]
}

// Text is a text with its placeholders filled in, as name, value, name, value, …. Numbers and texts from outside are made fit to be
// looked at. The number "count" chooses the form of a plural.
func (t *texts) Text(key string, pairs ...any) (string, error) {
	forms, known := t.all[key]
	tag := t.tag
	if !known {
		if forms, known = t.fallback[key]; !known {
			return "", fmt.Errorf("there is no text %q", key)
		}
		tag = language.English
	}
	text := forms["other"]
	for i := 0; i+1 < len(pairs); i += 2 {
		if n, isNumber := asInt(pairs[i+1]); isNumber && pairs[i] == "count" {
			if form := forms[formOf(tag, n)]; form != "" {
				text = form
			}
		}
	}
	filled := make([]string, 0, len(pairs))
	for i := 0; i+1 < len(pairs); i += 2 {
		filled = append(filled, "{"+textOf(pairs[i])+"}", t.show(pairs[i+1]))
	}
	return strings.NewReplacer(filled...).Replace(text), nil
}

// say is Text for keys of this package, which exist.
func (t *texts) say(key string, pairs ...any) string {
	text, err := t.Text(key, pairs...)
	if err != nil {
		return key
	}
	return text
}

// Has reports whether there is a text.
func (t *texts) Has(key string) bool { _, known := t.fallback[key]; return known }

// show is the value of a placeholder.
func (t *texts) show(value any) string {
	if n, ok := asInt(value); ok {
		return t.Number(n)
	}
	return visible(textOf(value))
}

func asInt(value any) (int64, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// formOf is CLDR's name of the plural form of a number.
func formOf(tag language.Tag, n int64) string {
	const digits = 1_000_000 // plural rules look at the last digits only, and at whether there are others
	i := max(n, -n)
	if i >= digits {
		i = i%digits + digits
	}
	switch plural.Cardinal.MatchPlural(tag, int(i), 0, 0, 0, 0) {
	case plural.Zero:
		return "zero"
	case plural.One:
		return "one"
	case plural.Two:
		return "two"
	case plural.Few:
		return "few"
	case plural.Many:
		return "many"
	case plural.Other:
	}
	return "other"
}

// Number is a whole number as the language writes it.
func (t *texts) Number(n int64) string { return t.printer.Sprint(format.Decimal(n)) }

// Percent is a share; "–" if it is not known. It says 100 % only of all, and 0 % only of none.
func (t *texts) Percent(share *float64) string {
	if share == nil {
		return "–"
	}
	const tenth = 0.001
	shown := *share
	switch {
	case shown < 1 && shown > 1-tenth:
		shown = 1 - tenth
	case shown > 0 && shown < tenth:
		shown = tenth
	}
	return t.printer.Sprint(format.Percent(shown, format.MaxFractionDigits(1)))
}

// Instant is a time, in UTC.
func (t *texts) Instant(at time.Time) string {
	u := at.UTC()
	return t.say("time.instant", "day", strconv.Itoa(u.Day()), "month", t.say("time.month."+strconv.Itoa(int(u.Month()))), "year", strconv.Itoa(u.Year()),
		"time", u.Format("15:04:05"))
}

// Relative says how far a time is from now, in its largest unit.
func (t *texts) Relative(at, now time.Time) string {
	d, key := at.Sub(now), "time.in."
	if d <= 0 {
		d, key = -d, "time.ago."
	}
	switch {
	case d < time.Minute:
		return t.say(key+"moment", "count", int(d/time.Second))
	case d < time.Hour:
		return t.say(key+"minutes", "count", int(d/time.Minute))
	case d < 48*time.Hour:
		return t.say(key+"hours", "count", int(d/time.Hour))
	}
	return t.say(key+"days", "count", int(d/(24*time.Hour)))
}
