package console

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// portalFailedView is the list of what failed for good.
type portalFailedView struct {
	Rows []portalDelivery
	Some bool
	Next string
	Of   failedOf
}

// failedOf is the endpoint whose failed messages a page is about; zero for those of all endpoints.
type failedOf struct{ ID, Name string }

// readFailedOf reads the endpoint that the page's address names.
func readFailedOf(p *portalPage) (of failedOf, err error) {
	id := p.r.URL.Query().Get("endpoint")
	if id == "" {
		return failedOf{}, nil
	}
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", id); err != nil {
		return failedOf{}, err
	}
	return failedOf{e.ID, shortName(e.Description, e.URL)}, nil
}

// query selects the dead letters.
func (of failedOf) query() url.Values {
	if of.ID == "" {
		return url.Values{}
	}
	return url.Values{"endpoint_id": {of.ID}}
}

// path is the address of the list.
func (of failedOf) path() string {
	if of.ID == "" {
		return portalPath("failed")
	}
	return portalPath("failed") + "?" + url.Values{"endpoint": {of.ID}}.Encode()
}

func portalFailed(p *portalPage) error {
	of, err := readFailedOf(p)
	if err != nil {
		return err
	}
	query := of.query()
	query.Set("limit", strconv.Itoa(shownMessages))
	query.Set("cursor", p.r.URL.Query().Get("cursor"))
	var found client.Page[client.Delivery]
	if err := p.get(&found, query, "dead-letters"); err != nil {
		return err
	}
	names, err := readNamesOf(p.page, found.Data, func(d client.Delivery) string { return d.EndpointID })
	if err != nil {
		return err
	}
	t, now := p.texts(), p.console.config.Now()
	v := portalFailedView{Next: found.NextCursor, Some: len(found.Data) > 0, Of: of}
	for _, d := range found.Data {
		if d.EventType == webhook.NotificationType {
			continue
		}
		v.Rows = append(v.Rows, portalDelivery{d, t.deliveryChip(d.State), t.sentenceOf(d, now), names.Short(d.EndpointID)})
	}
	return p.show(portalView{Template: "failed", Title: p.say("nav.failed"), Entry: "failed", Live: true, Data: v, Attempted: lastAttempt(found.Data)})
}

// lastAttempt is when the last attempt of deliveries ended; zero without one.
func lastAttempt(of []client.Delivery) (at time.Time) {
	for _, d := range of {
		if o := d.LastOutcome; o != nil && o.At.After(at) {
			at = o.At.Time
		}
	}
	return at
}

// askSendAllAgain asks with the number of messages, if they can be counted now.
func askSendAllAgain(p *portalPage) error {
	of, err := readFailedOf(p)
	if err != nil {
		return err
	}
	var groups letterGroups
	err = p.get(&groups, of.query(), "dead-letters", "groups")
	question := p.say("failed.send_all.question", "number", p.texts().more(groups.Counted, groups.More), "count", groups.Counted)
	if unlessBusy(err) != nil {
		return err
	}
	if err != nil {
		question = p.say("failed.send_all.question.uncounted")
	}
	return p.show(portalView{Template: "question", Title: p.say("failed.send_all"), Entry: "failed", Data: portalQuestion{
		Question: question, Detail: p.say("failed.send_all.detail"), Button: p.say("failed.send_all"), Back: of.path(),
	}})
}

func sendAllAgain(p *portalPage) error {
	of, err := readFailedOf(p)
	if err != nil {
		return err
	}
	body := map[string]any{"source": "dead_letters"}
	for field, values := range of.query() {
		body[field] = values[0]
	}
	err = p.create(nil, body, "replays")
	if isStatus(err, http.StatusConflict) || isStatus(err, http.StatusUnprocessableEntity) || isStatus(err, http.StatusTooManyRequests) {
		return p.done(of.path(), p.say("form.not_now"))
	}
	if err != nil {
		return err
	}
	return p.done(of.path(), p.say("failed.sending"))
}
