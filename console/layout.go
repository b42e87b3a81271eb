package console

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/explain"
)

//go:embed templates/*.html
var templateFiles embed.FS

// view is a page to be shown.
type view struct {
	Template string // of templates/: see the package's comment
	Title    string
	Status   int    // defaults to 200
	Entry    string // the label of the current entry of the navigation
	Live     bool   // the template <Template>/live is sent again as it changes
	Data     any
}

// templateData is a template's dot.
type templateData struct {
	Page pageInfo
	Data any
}

// pageInfo is what every template may use of the request.
type pageInfo struct {
	Name      string // of the console
	Title     string
	Tenant    string
	Path      string // of this page with its query: a link that holds its filters
	CSRF      string
	Flash     string
	Who       string // the session, in words
	SignedIn  bool
	Operator  bool
	CanChange bool
	Live      bool
	Version   string
	Groups    []navGroup // the menu
	ages      url.Values
	Find      string // where the search box leads; "" for none
	Search    string // what it holds
	Style     string // addresses of the assets
	Script    string
	Icon      string
}

// To is the path of a page about the page's tenant.
func (i pageInfo) To(parts ...string) string { return pagePath(i.Tenant, parts...) }

// With is this page's path with one parameter of its query changed; "" removes it. The position in a
// list is removed, too, unless it is what changes: then ages of the filter become times.
func (i pageInfo) With(name, value string) string {
	u, err := url.Parse(i.Path)
	if err != nil {
		return i.Path
	}
	query := u.Query()
	query.Del("cursor")
	query.Del(name)
	if value != "" {
		query.Set(name, value)
	}
	if name == "cursor" {
		maps.Copy(query, i.ages)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// parseTemplates reads all templates.
func parseTemplates(now func() time.Time) (*template.Template, error) {
	return template.New("").Funcs(functions(now)).ParseFS(templateFiles, "templates/*.html") //nolint:wrapcheck // New wraps it
}

// functions are those of the templates.
func functions(now func() time.Time) template.FuncMap {
	return template.FuncMap{
		"visible":  visible,
		"instant":  func(t any) string { return instant(timeOf(t)) },
		"rfc3339":  func(t any) string { return rfc3339(timeOf(t)) },
		"relative": func(t any) string { return explain.Relative(timeOf(t), now()) }, // as the sentences
		"lasting":  func(t any) string { return explain.Lasting(timeOf(t), now()) },
		"ended":    endOf,
		"ms":       milliseconds,
		"pointer":  func(n int64) *int64 { return &n },
		"percent":  percent,
		"rate":     rateWords,
		"count":    countAny,
		"many":     counted,
		"label":    func(reason any) string { return visible(explain.Label(textOf(reason))) },
		"brief":    func(reason any) string { return visible(explain.Brief(textOf(reason))) },
		"waited":   func(reason any) string { return visible(explain.Waited(textOf(reason))) },
		"url":      breakable,
		"named":    nameOr,
		"host":     hostOf,
		"upto":     upTo,
		"policies": policyNames,
		"pick": func(f form, name, label, hint string, options []string) fieldView {
			return newInput(f, name, label, hint, options...)
		},
		"words":  func(name any) string { return words(textOf(name)) },
		"text":   textOf,
		"number": func(n *int) int { return *cmp.Or(n, new(int)) },
		"join":   strings.Join, "pointers": pointers,
		"input": newInput,
		"short": func(text string, limit int) string { return clip(visible(text), limit) },
	}
}

// show answers with a page. For a stream it only sends the page's live part.
func (p *page) show(v view) error {
	data := templateData{Page: p.info(v), Data: v.Data}
	return p.answer(answered{
		templates: p.console.templates, name: v.Template, live: v.Live, status: v.Status, data: data,
		around: func(content template.HTML) any { return templateData{Page: data.Page, Data: content} },
	})
}

// answered is a page that is made of two templates: its own, and "layout" around it.
type answered struct {
	templates *template.Template
	name      string
	live      bool // the template <name>/live is sent again as it changes
	status    int  // 0 stands for 200
	data      any
	around    func(content template.HTML) any // the data of the layout
}

// answer sends a page, or to a stream only its live part.
func (p *page) answer(a answered) error {
	if p.live != nil {
		if !a.live {
			return refusal(http.StatusNotFound, "this page has no live part")
		}
		part, err := fill(a.templates, a.name+"/live", a.data)
		if err != nil {
			return err
		}
		done, err := p.startAnswer(len(part))
		if err != nil {
			return err
		}
		defer done()
		p.live.send(part)
		return nil
	}
	content, err := fill(a.templates, a.name, a.data)
	if err != nil {
		return err
	}
	whole, err := fill(a.templates, "layout", a.around(template.HTML(content))) //nolint:gosec // made by a template
	if err != nil {
		return err
	}
	done, err := p.startAnswer(len(whole))
	if err != nil {
		return err
	}
	defer done()
	p.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if a.status != 0 {
		p.w.WriteHeader(a.status)
	}
	_, _ = p.w.Write(whole) // a template has escaped it; an error: the browser has gone
	return nil
}

// maxPage is the size of a page that is made at most.
const maxPage = 4 << 20

// fill executes a template. Nothing of it is sent if it fails.
func fill(templates *template.Template, name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("make the page %s: %w", name, err)
	}
	if b.Len() > maxPage {
		return nil, errors.New("the page " + name + " is too large")
	}
	return b.Bytes(), nil
}

func (p *page) info(v view) pageInfo {
	s := p.session
	i := pageInfo{
		Name: p.console.config.Name, Title: v.Title, Tenant: p.tenant, Path: p.r.URL.RequestURI(), Flash: p.flash(), SignedIn: s.signedIn(),
		Live: v.Live, ages: p.ages, Version: p.console.config.Version,
		Style: p.console.assets.address("console.css"), Script: p.console.assets.address("console.js"), Icon: p.console.assets.address("icon.svg"),
	}
	if !s.signedIn() {
		return i
	}
	if v.Entry == searchTitle {
		i.Search = p.r.URL.Query().Get("q")
	}
	i.CSRF, i.Who, i.Operator, i.CanChange = csrfToken(s.token), describe(s), s.operator(), p.canChange()
	if i.Tenant == "" {
		i.Tenant = s.TenantID
	}
	switch {
	case i.Tenant != "":
		i.Find = i.To("search")
	case i.Operator:
		i.Find = Root + "/search"
	}
	i.Groups = p.menu(i.Tenant, v.Entry)
	return i
}

// describe names the key of the session.
func describe(s session) string {
	if s.key.Name != "" {
		return visible(s.key.Name) + " · " + s.key.Scope.String()
	}
	return s.key.ID.String() + " · " + s.key.Scope.String()
}
