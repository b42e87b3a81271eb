package console

import (
	"net/http"
	"net/url"
)

// question asks before a change that cannot be undone: a page with one button.
type question struct {
	Question string // what is going to happen, with its count
	Detail   string
	Button   string
	Back     string // the path to go back to
	Danger   bool
	Hidden   url.Values // what the form sends along
	Reason   bool       // it has a field for a reason
	Why      string     // the reason that was typed
	Problem  string
}

// ask shows a question. Its form posts to this page's path.
func (p *page) ask(title, entry string, q question) error {
	status := http.StatusOK
	if q.Problem != "" {
		status = http.StatusConflict
	}
	return p.show(view{Template: "question", Title: title, Entry: entry, Status: status, Data: q})
}
