package notify

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// Mail is a mail without its sender and recipient. Subject is one line.
type Mail struct {
	Subject, Text, HTML string
	UnsubscribeURL      string // "": there is nothing to unsubscribe from yet
}

// Links are the addresses in mails, and the name of who sends them.
type Links struct {
	Name    string // of the installation
	BaseURL string // of the pages that confirm and unsubscribe, without a path
}

// The paths of the pages, below which the token of a channel follows.
const (
	ConfirmPath     = "/notifications/confirm/"
	UnsubscribePath = "/notifications/unsubscribe/"
)

// Confirmation is the mail that asks the owner of an address whether notifications are wanted. It holds no text of a tenant.
func (l Links) Confirmation(token string) (Mail, error) {
	return l.mail("Please confirm notifications about webhooks", mailText{
		Title: "Please confirm",
		Lines: []line{{text: "Somebody asked " + l.Name + " to send notifications about webhook endpoints to this address. If you want them, confirm " +
			"the address with the link below. If you do not, ignore this mail: you get no others."}},
		Link: l.BaseURL + ConfirmPath + token, LinkText: "Confirm the address",
	})
}

// Notification is the mail that tells of something. portalURL is a page of the operator's; "" for none.
func (l Links) Notification(n *webhook.Notification, portalURL, token string) (Mail, error) {
	subject := title(n.Notice)
	if on := host(n); on != "" {
		subject += ": " + on
	}
	t := mailText{
		Title: title(n.Notice), Lines: append([]line{{text: oneLine(n.Summary, maxSummary)}}, facts(n)...),
		Link: portalURL, LinkText: "Open", Unsubscribe: l.BaseURL + UnsubscribePath + token,
	}
	return l.mail(subject, t)
}

// mailText is what both forms of a mail say.
type mailText struct {
	Name, Title    string
	Lines          []line
	Link, LinkText string // "" for none
	Unsubscribe    string // "" for none
}

// Name and Text are for the template.
func (l line) Name() string { return l.name }

// Text is the text of a fact.
func (l line) Text() string { return l.text }

func (l Links) mail(subject string, t mailText) (Mail, error) {
	t.Name = l.Name
	var text, html strings.Builder
	text.WriteString(t.Title + "\n\n")
	for _, one := range t.Lines {
		if one.name != "" {
			text.WriteString(one.name + ": ")
		}
		text.WriteString(one.text + "\n")
	}
	if t.Link != "" {
		text.WriteString("\n" + t.LinkText + ": " + t.Link + "\n")
	}
	text.WriteString("\n-- \n" + t.Name + "\n")
	if t.Unsubscribe != "" {
		text.WriteString("Unsubscribe: " + t.Unsubscribe + "\n")
	}
	page, err := template.New("mail").Parse(mailHTML)
	if err == nil {
		err = page.Execute(&html, t)
	}
	if err != nil {
		return Mail{}, fmt.Errorf("write a mail: %w", err)
	}
	return Mail{Subject: oneLine(subject, maxAbout), Text: text.String(), HTML: html.String(), UnsubscribeURL: t.Unsubscribe}, nil
}

const mailHTML = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title></head>
<body style="font-family: sans-serif; line-height: 1.5">
<h1 style="font-size: 1.2em">{{.Title}}</h1>
{{range .Lines}}<p>{{if .Name}}<strong>{{.Name}}:</strong> {{end}}{{.Text}}</p>
{{end}}{{if .Link}}<p><a href="{{.Link}}">{{.LinkText}}</a></p>
{{end}}<hr>
<p style="font-size: 0.9em">{{.Name}}{{if .Unsubscribe}} · <a href="{{.Unsubscribe}}">Unsubscribe</a>{{end}}</p>
</body></html>
`
