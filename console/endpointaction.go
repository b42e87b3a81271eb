package console

import (
	"encoding/json"
	"net/http"
	"strings"
)

// ofEndpoint reads the endpoint of the path and its health, for a question about it.
func (p *page) ofEndpoint() (e endpoint, h health, err error) {
	id := p.r.PathValue("id")
	if err := p.get(&e, nil, "endpoints", id); err != nil {
		return e, h, err
	}
	err = p.get(&h, nil, "endpoints", id, "health")
	return e, h, err
}

// waitingWords is how many deliveries wait for an endpoint.
func waitingWords(h health) string {
	n := count(int64(h.Waiting + h.Scheduled))
	if h.More {
		n = "more than " + n
	}
	return n
}

func askPause(p *page) error {
	e, h, err := p.ofEndpoint()
	if err != nil {
		return err
	}
	return p.ask("Pause the endpoint", "Endpoints", question{
		Asks:   "No more requests go to " + visible(nameOf(e)) + ".",
		Detail: waitingWords(h) + " deliveries wait for it now. They and new ones are held, and sent after you resume it.",
		Button: "Pause", Back: p.to("endpoints", e.ID), Danger: true,
	})
}

func pauseEndpoint(p *page) error {
	return p.act("Pause the endpoint", "The endpoint is paused.", "pause", nil)
}

// act changes the endpoint of the path and goes back to it. A refusal is shown with the question.
func (p *page) act(title, done, action string, body any) error {
	id := p.r.PathValue("id")
	back := p.to("endpoints", id)
	err := p.send(nil, http.MethodPost, body, "endpoints", id, action)
	if isStatus(err, http.StatusConflict) || isStatus(err, http.StatusBadRequest) {
		return p.ask(title, "Endpoints", question{Asks: "Nothing was changed.", Problem: sentence(problemOf(err).Detail), Button: "Try again", Back: back})
	}
	if err != nil {
		return err
	}
	return p.done(back, done)
}

// resumeView asks for the rate of the release.
type resumeView struct {
	Form form
	Name string
	Held string
	Back string
}

func (p *page) showResume(f form, status int) error {
	e, h, err := p.ofEndpoint()
	if err != nil {
		return err
	}
	held := count(int64(h.Held))
	if h.More {
		held = "more than " + held
	}
	return p.show(view{
		Template: "resume", Title: "Resume the endpoint", Entry: "Endpoints", Status: status,
		Data: resumeView{f, nameOf(e), held, p.to("endpoints", e.ID)},
	})
}

func askResume(p *page) error { return p.showResume(newForm("rate_per_minute", ""), http.StatusOK) }

func resumeEndpoint(p *page) error {
	id := p.r.PathValue("id")
	f := newForm("rate_per_minute", "")
	body := map[string]any{}
	if rate := strings.TrimSpace(p.typed.Get("rate_per_minute")); rate != "" {
		body["rate_per_minute"] = number(rate)
	}
	var resumed struct {
		ReplayID string `json:"replay_id"`
	}
	if err := p.send(&resumed, http.MethodPost, body, "endpoints", id, "resume"); err != nil {
		if f, err = f.refused(p.typed, err); err != nil {
			return err
		}
		return p.showResume(f, http.StatusBadRequest)
	}
	said := "The endpoint is active."
	if resumed.ReplayID != "" {
		said = "The endpoint is active; what was held is being sent (" + resumed.ReplayID + ")."
	}
	return p.done(p.to("endpoints", id), said)
}

// number is a text as a number of JSON, or as it is: then the API says what is wrong with it.
func number(text string) any {
	if n := json.Number(text); json.Valid([]byte(text)) {
		if _, err := n.Float64(); err == nil {
			return n
		}
	}
	return text
}

func askCloseCircuit(p *page) error {
	e, h, err := p.ofEndpoint()
	if err != nil {
		return err
	}
	return p.ask("Close the circuit", "Endpoints", question{
		Asks:   "The oldest of " + waitingWords(h) + " waiting deliveries is sent to " + visible(nameOf(e)) + " at once, as a probe.",
		Detail: "If it succeeds, the circuit closes and the rate rises step by step. If it fails, the circuit stays open.",
		Button: "Try now", Back: p.to("endpoints", e.ID),
	})
}

func closeCircuit(p *page) error {
	return p.act("Close the circuit", "A probe is on its way.", "close-circuit", nil)
}

func askDeleteEndpoint(p *page) error {
	e, h, err := p.ofEndpoint()
	if err != nil {
		return err
	}
	held := count(int64(h.Held))
	return p.ask("Delete the endpoint", "Endpoints", question{
		Asks:   "Delete " + visible(nameOf(e)) + " and cancel its open deliveries: " + waitingWords(h) + " waiting, " + held + " held.",
		Detail: "This cannot be undone. Its dead letters stay readable, but cannot be replayed any more.",
		Button: "Delete for good", Back: p.to("endpoints", e.ID), Danger: true,
	})
}

func deleteEndpoint(p *page) error {
	if err := p.send(nil, http.MethodDelete, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	return p.done(p.to("endpoints"), "The endpoint is deleted; its open deliveries are being cancelled.")
}
