package console

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/everpost/everpost/client"
)

const keysTitle = "Keys"

// keysView is the list of keys with the form of a new one, and the new one itself, which is shown once.
type keysView struct {
	Keys []client.Key
	Next string
	Form form
	Made *client.Key
}

// newKeyForm is an empty form. It has the time, so that a form that is sent twice asks for the same key.
func newKeyForm(p *page) form {
	return newForm("name", "", "scope", "ingest", "days", "", "shown", p.console.config.Now().UTC().Format(time.RFC3339))
}

func listKeys(p *page) error { return showKeys(p, newKeyForm(p), nil) }

func showKeys(p *page, f form, made *client.Key) error {
	var found client.Page[client.Key]
	if err := p.get(&found, url.Values{"limit": {"50"}, "cursor": {p.r.URL.Query().Get("cursor")}}, "keys"); err != nil {
		return err
	}
	status := f.status()
	if made != nil {
		status = http.StatusCreated
	}
	return p.show(view{Template: "keys", Title: keysTitle, Entry: keysTitle, Status: status, Data: keysView{found.Data, found.NextCursor, f, made}})
}

// maxKeyDays bounds a key's life: a larger number is a mistake.
const maxKeyDays = 3650

// createKey creates a key and shows its text in the answer to the form: it is nowhere to be read again, so no page that could
// be opened a second time has it.
func createKey(p *page) error {
	typed := p.typed
	body := map[string]any{"scope": typed.Get("scope")}
	if name := typed.Get("name"); name != "" {
		body["name"] = name
	}
	var made client.Key
	var err error
	if days := typed.Get("days"); days != "" {
		shown, wrongTime := time.Parse(time.RFC3339, typed.Get("shown"))
		if wrongTime != nil {
			shown = p.console.config.Now().UTC()
		}
		n, notNumber := strconv.Atoi(days)
		if notNumber != nil || n < 1 || n > maxKeyDays {
			err = wrong("days", "must be a whole number from 1 to "+count(maxKeyDays))
		}
		body["expires_at"] = shown.AddDate(0, 0, n).Format(time.RFC3339)
	}
	if err == nil {
		err = p.create(&made, body, "keys")
	}
	if err != nil {
		f, other := newKeyForm(p).refused(typed, err)
		if other != nil {
			return other
		}
		return showKeys(p, f, nil)
	}
	return showKeys(p, newKeyForm(p), &made)
}

func askRevokeKey(p *page) error {
	return p.ask("Revoke a key", keysTitle, question{
		Question: "Revoke the key " + p.r.PathValue("id") + "?",
		Detail:   "Requests with it are refused from now on, and console sessions that were opened with it end. This cannot be undone.",
		Button:   "Revoke", Back: p.to("keys"), Danger: true,
	})
}

func revokeKey(p *page) error {
	if err := p.send(nil, http.MethodDelete, nil, "keys", p.r.PathValue("id")); err != nil {
		return err
	}
	return p.done(p.to("keys"), "The key has been revoked.")
}
