package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// noticeLabel says of what a notice tells.
func noticeLabel(n webhook.Notice) string {
	switch n {
	case webhook.NoticeFailing:
		return "An endpoint fails: half of at least 10 first attempts within 10 minutes, or its circuit is open for 10 minutes"
	case webhook.NoticeDisablingSoon:
		return "An endpoint will be disabled soon if that goes on"
	case webhook.NoticeDisabled:
		return "An endpoint was disabled automatically"
	case webhook.NoticeRecovered:
		return "It has recovered from what was told"
	case webhook.NoticeDeadLetters:
		return "Once a day: how many deliveries were given up, of all endpoints"
	case webhook.NoticeBacklogExpiring:
		return "Held deliveries of a paused or disabled endpoint will be given up within 24 hours"
	}
	return n.String()
}

// channelForm is the form of a channel.
func channelForm(c client.NotificationChannel) form {
	f := newForm("kind", c.Kind, "target", c.Target, "on", "", "endpoint", "", "endpoint_ids", "")
	if c.Target == webhook.Redacted {
		f.Values.Set("target", "")
	}
	f.Values["on"], f.Values["endpoint"] = c.On, c.EndpointIDs
	return f
}

// newChannel is what the form of a new channel begins with.
func newChannel() client.NotificationChannel {
	return client.NotificationChannel{
		Kind: webhook.ChannelEmail.String(), On: []string{webhook.NoticeFailing.String(), webhook.NoticeDisabled.String(), webhook.NoticeRecovered.String()},
	}
}

// channelFormView is the form of a new channel, or of one that is changed.
type channelFormView struct {
	Form      form
	ID, Kind  string // of one that is changed, else ""
	Back      string
	Notices   []checked
	Endpoints []checked // to choose from
	Typed     bool      // there are others, whose ids are typed
}

// Secret reports whether the target is stored and not shown.
func (v channelFormView) Secret() bool { return v.ID != "" && v.Kind != webhook.ChannelEmail.String() }

// checked is a box that is checked or not.
type checked struct {
	Value, Label string
	On           bool
}

func showChannelForm(p *page, f form, c client.NotificationChannel) error {
	at, title := channelsAt(p), "Add a channel"
	v := channelFormView{Form: f, Back: at.page, Typed: true}
	if c.ID != "" {
		v.ID, v.Kind, title = c.ID, c.Kind, "Change a channel"
	}
	for _, n := range webhook.AllNotices() {
		v.Notices = append(v.Notices, checked{n.String(), noticeLabel(n), slices.Contains(f.Values["on"], n.String())})
	}
	var offered []string
	if p.tenant != "" {
		names, err := readEndpointNames(p)
		if err != nil {
			return err
		}
		offered = names.Choices("")
		for _, id := range offered {
			v.Endpoints = append(v.Endpoints, checked{id, names.Short(id), slices.Contains(f.Values["endpoint"], id)})
		}
		v.Typed = names.More || len(offered) < len(names.ids)
	}
	others := listed(f.Value("endpoint_ids"))
	for _, id := range f.Values["endpoint"] {
		if id != "" && !slices.Contains(offered, id) {
			others = append(others, id)
		}
	}
	f.Values.Set("endpoint_ids", strings.Join(others, "\n"))
	v.Typed = v.Typed || len(others) > 0
	return p.show(view{Template: "channel-form", Title: title, Entry: at.title, Status: f.status(), Data: v})
}

// typedChannel is a channel as the form has it; of a chat that is changed, an empty target keeps the stored one.
func typedChannel(typed url.Values, before client.NotificationChannel) client.NotificationChannelInput {
	c := client.NotificationChannelInput{ID: before.ID, Kind: before.Kind, Target: strings.TrimSpace(typed.Get("target")), On: []string{}}
	if c.ID == "" {
		c.Kind = typed.Get("kind")
	} else if c.Target == "" && c.Kind != webhook.ChannelEmail.String() {
		c.Target = webhook.Redacted
	}
	c.On = append(c.On, typed["on"]...)
	for _, id := range slices.Concat(typed["endpoint"], listed(typed.Get("endpoint_ids"))) {
		if !slices.Contains(c.EndpointIDs, id) {
			c.EndpointIDs = append(c.EndpointIDs, id)
		}
	}
	return c
}

func askChannel(p *page) error {
	return showChannelForm(p, channelForm(newChannel()), client.NotificationChannel{})
}

func addChannel(p *page) error {
	now, err := channelsAt(p).read(p)
	if err != nil {
		return err
	}
	return saveChannel(p, now, len(now.Channels), client.NotificationChannel{})
}

func editChannel(p *page) error {
	now, i, err := findChannel(p)
	if err != nil {
		return err
	}
	return showChannelForm(p, channelForm(now.Channels[i]), now.Channels[i])
}

func changeChannel(p *page) error {
	now, i, err := findChannel(p)
	if err != nil {
		return err
	}
	return saveChannel(p, now, i, now.Channels[i])
}

// saveChannel puts the channels with that of the form at its place: the stored one, or one after the last.
func saveChannel(p *page, now client.Notifications, place int, before client.NotificationChannel) error {
	at, typed := channelsAt(p), typedChannel(p.typed, before)
	channels := inputsOf(now)
	if place == len(channels) {
		channels = append(channels, typed)
	} else {
		channels[place] = typed
	}
	if err := at.put(p, channels, value(now.PortalURL), place); err != nil {
		f, err := channelForm(before).refused(p.typed, err)
		if err != nil {
			return err
		}
		return showChannelForm(p, f, before)
	}
	done := "The channel is saved."
	if typed.Kind == webhook.ChannelEmail.String() && !strings.EqualFold(typed.Target, before.Target) {
		done = "The channel is saved. A mail with a link to confirm goes to " + visible(typed.Target) + "."
	}
	return p.done(at.page, done)
}
