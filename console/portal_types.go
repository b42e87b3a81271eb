package console

import (
	"html"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/schema"
	"github.com/everpost/everpost/internal/webhook"
)

// portalTypesView is the catalogue of event types: a part of those that have what is looked for.
type portalTypesView struct {
	Groups []portalTypeGroup
	Find   string
	Next   string // the path of the next part; "" for none
}

type portalTypeGroup struct {
	Name  string // "" for those without a group
	Types []portalTypeRow
}

type portalTypeRow struct {
	client.ListedEventType

	Summary    string // the beginning of its description
	Deprecated bool
}

const (
	shownTypeRows    = 60 // of a part: a page has 100 KB
	shownTypeSummary = 200
)

func portalTypes(p *portalPage) error {
	all, err := readEventTypes(p.page)
	if err != nil {
		return err
	}
	query := p.r.URL.Query()
	v := portalTypesView{Find: clip(strings.TrimSpace(query.Get("find")), webhook.MaxTypeLength)}
	all = slices.DeleteFunc(slices.SortedFunc(slices.Values(all), byGroup), func(t client.ListedEventType) bool {
		return t.State == archivedType || !mentions(t, v.Find)
	})
	from, err := strconv.Atoi(query.Get("from"))
	if err != nil || from < 0 || from >= len(all) {
		from = 0
	}
	end := min(len(all), from+shownTypeRows)
	if end < len(all) {
		v.Next = pageInfo{Path: p.r.URL.RequestURI()}.With("from", strconv.Itoa(end))
	}
	for _, t := range all[from:end] {
		if n := len(v.Groups); n == 0 || v.Groups[n-1].Name != value(t.Group) {
			v.Groups = append(v.Groups, portalTypeGroup{Name: value(t.Group)})
		}
		first, _, _ := strings.Cut(t.Description, "\n")
		g := &v.Groups[len(v.Groups)-1]
		g.Types = append(g.Types, portalTypeRow{t, clip(visible(first), shownTypeSummary), t.State == deprecatedType})
	}
	return p.show(portalView{Template: "types", Title: p.say("types.title"), Entry: "endpoints", Data: v})
}

// portalTypeView is the page of an event type.
type portalTypeView struct {
	Type        client.EventType
	Deprecated  bool
	Replacement bool // the type to use instead has a page
	Version     int  // that is shown; 0: there is none
	Fields      []portalField
	MoreFields  bool
	Examples    []string
	MoreExample bool // examples are cut

	Form      form
	Endpoints []portalTarget
	Busy      bool // the endpoints cannot be read now
	Attempt   *portalAttempt
	SentTo    string
	Numbers   bool // that endpoint numbers its messages: an example has no number
}

// portalField is a field of a payload in words.
type portalField struct {
	schema.Field

	Kind string // its types
}

// portalTarget is an endpoint that an example can be sent to.
type portalTarget struct{ ID, Name string }

const (
	shownFieldName     = 100 // bytes
	shownFieldText     = 300
	shownFieldValue    = 60
	shownExample       = 6 << 10
	shownFieldsBytes   = 40 << 10 // of HTML
	shownExamplesBytes = 30 << 10 // of HTML
	fieldMarkup        = 200      // bytes that a field takes beside its texts
	maxTargets         = 50       // endpoints of a choice
)

// readPortalType reads an event type. An archived one is not shown.
func readPortalType(p *portalPage, name string) (client.EventType, error) {
	var t client.EventType
	err := p.api.get(p.r.Context(), &t, nil, apiPath("event-types", name))
	if err == nil && t.State == archivedType {
		err = errNotFound()
	}
	return t, err
}

func portalType(p *portalPage) error {
	t, err := readPortalType(p, p.r.PathValue("name"))
	if err != nil {
		return err
	}
	return showPortalType(p, t, portalTypeView{Form: newForm("endpoint", p.r.URL.Query().Get("endpoint"), "example", "")})
}

func showPortalType(p *portalPage, t client.EventType, v portalTypeView) error {
	v.Type, v.Deprecated = t, t.State == deprecatedType
	if t.ReplacedBy != nil {
		other, err := readPortalType(p, *t.ReplacedBy)
		if err != nil && !isStatus(err, http.StatusNotFound) {
			return err
		}
		v.Replacement = other.Name != ""
	}
	if shown := chosenVersion(t, p.r.URL.Query().Get("version")); shown != nil {
		v.Version = shown.Version
		v.readFields(p.texts(), shown)
	}
	if p.canChange() && len(v.Examples) > 0 {
		var err error
		v.Endpoints, err = targetsOf(p, t.Name)
		if v.Busy = err != nil; unlessBusy(err) != nil {
			return err
		}
	}
	return p.show(portalView{Template: "type", Title: t.Name, Entry: "endpoints", Status: v.Form.status(), Data: v})
}

// chosenVersion is the version of a number, or the newest; nil if there is none.
func chosenVersion(t client.EventType, number string) *client.EventTypeVersion {
	for i := range t.Versions {
		if strconv.Itoa(t.Versions[i].Version) == number {
			return &t.Versions[i]
		}
	}
	if n := len(t.Versions); n > 0 {
		return &t.Versions[n-1]
	}
	return nil
}

// readFields reads what a version says of payloads, as far as there is room on a page.
func (v *portalTypeView) readFields(t *texts, of *client.EventTypeVersion) {
	fields, more := schema.Fields(of.Schema)
	v.MoreFields = more
	room := shownFieldsBytes
	for _, f := range fields {
		f.Description = clip(visible(f.Description), shownFieldText)
		f.Name = clip(visible(f.Name), shownFieldName)
		for i := range f.Values {
			f.Values[i] = clip(visible(f.Values[i]), shownFieldValue)
		}
		shown := portalField{f, t.typeWords(f)}
		if room -= len(html.EscapeString(f.Name+f.Description+shown.Kind+strings.Join(f.Values, ""))) + fieldMarkup; room < 0 {
			v.MoreFields = true
			break
		}
		v.Fields = append(v.Fields, shown)
	}
	room = shownExamplesBytes
	for _, example := range of.Examples {
		text, cut := cutExample(example, shownExample, &room)
		v.MoreExample = v.MoreExample || cut
		v.Examples = append(v.Examples, text)
	}
}

// typeWords are the types of a field in words.
func (t *texts) typeWords(f schema.Field) string {
	words := make([]string, 0, len(f.Types))
	for _, name := range f.Types {
		switch {
		case name == "array" && len(f.Items) > 0:
			words = append(words, t.say("schema.list_of", "types", t.typeNames(f.Items)))
		case t.Has("schema.type." + name):
			words = append(words, t.say("schema.type."+name))
		}
	}
	if len(words) == 0 && len(f.Values) == 0 {
		words = append(words, t.say("schema.any"))
	}
	text := strings.Join(words, ", ")
	if f.Format != "" && text != "" {
		text += " (" + clip(visible(f.Format), shownFieldName) + ")"
	}
	return text
}

func (t *texts) typeNames(types []string) string {
	return t.typeWords(schema.Field{Types: types})
}

// targetsOf are the endpoints that an example can be sent to: those first that get the type.
func targetsOf(p *portalPage, name string) ([]portalTarget, error) {
	var found client.Page[client.EndpointCondition]
	if err := p.get(&found, url.Values{"limit": {strconv.Itoa(maxTargets)}}, "endpoint-conditions"); err != nil {
		return nil, err
	}
	gets := func(e client.EndpointCondition) bool {
		return slices.ContainsFunc(e.EventTypes, func(filter string) bool { return webhook.FilterMatches(filter, name) })
	}
	slices.SortStableFunc(found.Data, func(a, b client.EndpointCondition) int {
		switch first, second := gets(a), gets(b); {
		case first == second:
			return 0
		case first:
			return -1
		}
		return 1
	})
	targets := make([]portalTarget, len(found.Data))
	for i, e := range found.Data {
		targets[i] = portalTarget{e.EndpointID, shortName(e.Description, e.URL)}
	}
	return targets, nil
}

// sendTypeExample sends an example of the type to one of the endpoints, as a test: it is signed, and not stored.
func sendTypeExample(p *portalPage) error {
	t, err := readPortalType(p, p.r.PathValue("name"))
	if err != nil {
		return err
	}
	v := portalTypeView{Form: newForm("endpoint", "", "example", "").kept(p.typed)}
	version := chosenVersion(t, p.r.URL.Query().Get("version"))
	number, err := strconv.Atoi(p.typed.Get("example"))
	if version == nil || err != nil || number < 1 || number > len(version.Examples) {
		return errNotFound()
	}
	id := p.typed.Get("endpoint")
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", id); err != nil {
		return err
	}
	body, err := withPayload(map[string]any{"type": t.Name}, version.Examples[number-1])
	if err != nil {
		return err
	}
	var made client.Attempt
	if err := p.send(&made, http.MethodPost, body, "endpoints", id, "test"); err != nil {
		if v.Form, err = p.refused(v.Form, err); err != nil {
			return err
		}
		return showPortalType(p, t, v)
	}
	shown := p.texts().attemptOf(made)
	v.Attempt, v.SentTo, v.Numbers = &shown, shortName(e.Description, e.URL), numbersOf(e) != ""
	return showPortalType(p, t, v)
}
