package reference

import (
	"bytes"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/everpost/everpost/internal/look"
)

// page is what the template shows.
type page struct {
	Name                 string // of the page: "" is the first one
	Title, Version       string
	Console              bool
	Style, Script, Icon  string // addresses
	Groups               []group
	Current              group // of a page of operations
	Text                 template.HTML
	Operations           []operation
	Schemas              []schema
	Summary, Description template.HTML // of the API
}

// group is a group of operations. Its name is that of its page.
type group struct {
	Name, Title string
	Description template.HTML
	Operations  []entry
}

// Address is the path of the group's page.
func (g group) Address() string { return root + "/" + g.Name }

// entry is an operation in the menu.
type entry struct{ ID, Method, Path, Summary string }

// operation is an operation on its page.
type operation struct {
	Operation

	Summary     string
	Description template.HTML
	Parameters  []field
	Body        *body
	Curl        string
	Answers     []answer
	Errors      []failure
}

// body is the body of a request.
type body struct {
	Required    bool
	Type        []piece
	Description template.HTML
	Fields      []field
	Example     string
}

// answer is the answer to a request that succeeds.
type answer struct {
	Status      string
	Description template.HTML
	Media       string
	Type        []piece
	Example     string
}

// failure is an answer that refuses a request.
type failure struct {
	Status string
	Codes  []string
}

func (p *pages) make() error {
	info := p.document.get("info")
	first := page{Title: info.own("title").text(), Version: info.own("version").text(), Console: p.config.Console}
	first.Style, first.Script, first.Icon = p.address(styleFile), p.address(scriptFile), p.address(iconFile)
	var err error
	if first.Summary, err = p.prose(info.own("summary").text()); err != nil {
		return err
	}
	if first.Description, err = p.prose(info.own("description").text()); err != nil {
		return err
	}
	if first.Groups, err = p.groups(); err != nil {
		return err
	}
	if err := p.write(first); err != nil {
		return err
	}
	for _, g := range first.Groups {
		one := first
		one.Name, one.Current = g.Name, g
		if one.Operations, err = p.operations(g); err != nil {
			return err
		}
		if err := p.write(one); err != nil {
			return err
		}
	}
	types := first
	types.Name = typesPage
	for name, of := range p.document.get("components", "schemas").entries() {
		s, err := p.schema(name, of)
		if err != nil {
			return err
		}
		types.Schemas = append(types.Schemas, s)
	}
	slices.SortFunc(types.Schemas, func(a, b schema) int { return strings.Compare(a.Name, b.Name) })
	if err := p.write(types); err != nil {
		return err
	}
	failures := first
	failures.Name = errorsPage
	if failures.Text, err = p.prose(p.config.Errors); err != nil {
		return err
	}
	return p.write(failures)
}

func (p *pages) address(file string) string { return p.files[file].Address(root + "/" + file) }

func (p *pages) write(one page) error {
	var b bytes.Buffer
	if err := p.shape.Execute(&b, one); err != nil {
		return fmt.Errorf("make the page %s of the reference: %w", one.Name, err)
	}
	p.files[one.Name] = look.NewFile(b.Bytes(), "text/html; charset=utf-8")
	return nil
}

func (p *pages) groups() (all []group, err error) {
	for _, tag := range p.document.get("tags").items() {
		title := tag.own("name").text()
		g := group{Name: strings.ReplaceAll(title, " ", "-"), Title: strings.ToUpper(title[:1]) + title[1:]}
		if g.Description, err = p.prose(tag.own("description").text()); err != nil {
			return nil, err
		}
		for _, o := range p.config.Operations {
			of := p.operationNode(o)
			if slices.Contains(of.own("tags").texts(), title) {
				g.Operations = append(g.Operations, entry{o.ID, o.Method, o.Path, of.own("summary").text()})
			}
		}
		all = append(all, g)
	}
	return all, nil
}

func (p *pages) operationNode(o Operation) node {
	return p.document.get("paths", o.Path, strings.ToLower(o.Method))
}

func (p *pages) operations(of group) (all []operation, err error) {
	for _, o := range p.config.Operations {
		if !slices.ContainsFunc(of.Operations, func(e entry) bool { return e.ID == o.ID }) {
			continue
		}
		one, err := p.operation(o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.ID, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func (p *pages) operation(of Operation) (o operation, err error) {
	n := p.operationNode(of)
	o = operation{Operation: of, Summary: n.own("summary").text()}
	if o.Description, err = p.prose(withoutScope(n.own("description").text())); err != nil {
		return o, err
	}
	parameters := append(p.document.get("paths", of.Path, "parameters").items(), n.own("parameters").items()...)
	path := of.Path
	for _, parameter := range parameters {
		parameter = parameter.resolved()
		f := field{
			Name: parameter.own("name").text(), In: parameter.own("in").text(), Required: parameter.own("required").text() == "true",
			Type: typeOf(parameter.own("schema")), Bounds: bounds(parameter.own("schema")),
		}
		if f.Description, err = p.prose(parameter.own("description").text()); err != nil {
			return o, err
		}
		if f.In == "path" {
			path = strings.Replace(path, "{"+f.Name+"}", parameter.own("example").text(), 1)
		}
		o.Parameters = append(o.Parameters, f)
	}
	media, sent := "", ""
	if request := n.get("requestBody"); request.exists() {
		if o.Body, media, err = p.body(request); err != nil {
			return o, err
		}
		if sent = o.Body.Example; sent == "{}" && !o.Body.Required {
			sent = ""
		}
	}
	o.Curl = curl(of, path, media, sent)
	o.Answers, o.Errors, err = p.answers(n.get("responses"))
	return o, err
}

func (p *pages) body(request node) (b *body, media string, err error) {
	b = &body{Required: request.own("required").text() == "true"}
	if b.Description, err = p.prose(request.own("description").text()); err != nil {
		return nil, "", err
	}
	for name, content := range request.own("content").entries() { // each has one media type
		media, b.Type = name, typeOf(content.own("schema"))
		if b.Fields, err = p.fields(content.own("schema"), "", 0); err != nil {
			return nil, "", err
		}
		if b.Example, err = exampleOf(content); err != nil {
			return nil, "", err
		}
	}
	return b, media, nil
}

func (p *pages) answers(responses node) (answers []answer, failures []failure, err error) {
	for status, response := range responses.entries() {
		response = response.resolved()
		if status >= "400" {
			failures = append(failures, failure{status, codes(response.get("content", "application/problem+json", "schema"))})
			continue
		}
		a := answer{Status: status}
		if a.Description, err = p.prose(response.own("description").text()); err != nil {
			return nil, nil, err
		}
		for media, content := range response.own("content").entries() {
			if a.Type = typeOf(content.own("schema")); a.Media != "" {
				a.Media += ", "
			}
			a.Media += media
			if a.Example, err = exampleOf(content); err != nil {
				return nil, nil, err
			}
		}
		answers = append(answers, a)
	}
	return answers, failures, nil
}

// codes are the names of the problems that an answer may have: the last part of their types.
func codes(schema node) (all []string) {
	for _, part := range schema.own("allOf").items() {
		of := part.own("properties").own("type")
		for _, address := range append(of.own("enum").texts(), of.own("const").texts()...) {
			all = append(all, address[strings.LastIndexByte(address, '/')+1:])
		}
	}
	return all
}

// withoutScope is a description without its first words, which name the scope: the page shows it apart.
func withoutScope(description string) string {
	for _, scope := range []string{"Any key.", "Ingest.", "Admin.", "Operator."} {
		if rest, found := strings.CutPrefix(description, scope); found {
			return strings.TrimSpace(rest)
		}
	}
	return description
}
