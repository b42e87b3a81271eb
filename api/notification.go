package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// Notifications stores whom a tenant tells of changes of its endpoints. The tenant "" is the installation.
type Notifications interface {
	// Settings returns CodeNotFound if there is no such tenant.
	Settings(ctx context.Context, tenantID string) (webhook.NotificationSettings, error)
	// Put replaces the channels. CodeInvalid: the id of a channel that does not exist; CodeConflict: they were changed meanwhile.
	Put(ctx context.Context, by webhook.Actor, tenantID string, in webhook.NotificationInput) (webhook.NotificationSettings, error)
}

func showNotifications(s webhook.NotificationSettings) client.Notifications {
	view := client.Notifications{Channels: make([]client.NotificationChannel, len(s.Channels)), PortalURL: nullable(s.PortalURL)}
	for i := range s.Channels {
		c := &s.Channels[i]
		shown := client.NotificationChannel{
			EndpointIDs: []string{}, On: []string{},
			ID: c.ID.String(), Kind: c.Kind.String(), Target: webhook.Redacted, State: c.State.String(), LastError: nullable(c.LastError),
			LastErrorAt: timestamp(c.LastErrorAt), LastToldAt: timestamp(c.LastToldAt),
		}
		if c.Kind == webhook.ChannelEmail {
			shown.Target = c.Address
		}
		for _, notice := range c.Notices.List() {
			shown.On = append(shown.On, notice.String())
		}
		for _, id := range c.EndpointIDs {
			shown.EndpointIDs = append(shown.EndpointIDs, id.String())
		}
		view.Channels[i] = shown
	}
	return view
}

// notificationHandler shows and replaces channels.
type notificationHandler struct {
	notifications Notifications
	urls          URLs
	mail          bool // the installation has a mail server
}

func (h *notificationHandler) get(c call) error {
	s, err := h.notifications.Settings(c.Request().Context(), c.tenant)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showNotifications(s))
}

func (h *notificationHandler) put(c call) error {
	var in webhook.NotificationInput
	err := c.object(func(d *jsonDecoder, name string) {
		switch name {
		case "channels":
			in.Channels = h.readChannels(d)
		case "portal_url":
			set(d, &in.PortalURL, "", readPortalURL)
		default:
			d.unknown()
		}
	}, "channels")
	if err != nil {
		return err
	}
	if err := h.refuseNewMail(c, in); err != nil {
		return err
	}
	s, err := h.notifications.Put(c.Request().Context(), c.actor(), c.tenant, in)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showNotifications(s))
}

// refuseNewMail refuses mail channels that are not stored, while no mail is sent. Those that are may stay.
func (h *notificationHandler) refuseNewMail(c call, in webhook.NotificationInput) error {
	asked := func(one webhook.ChannelInput) bool { return one.Kind == webhook.ChannelEmail && one.Target != "" }
	if h.mail || !slices.ContainsFunc(in.Channels, asked) {
		return nil
	}
	before, err := h.notifications.Settings(c.Request().Context(), c.tenant)
	if err != nil {
		return err
	}
	refused := &webhook.Error{Code: webhook.CodeInvalid, Message: "the request is not valid"}
	for i, one := range in.Channels {
		stored := func(known webhook.Channel) bool {
			return known.Kind == webhook.ChannelEmail && (one.ID.IsZero() || one.ID == known.ID) && strings.EqualFold(known.Address, one.Target)
		}
		if asked(one) && !slices.ContainsFunc(before.Channels, stored) {
			refused.Fields = append(refused.Fields, webhook.FieldError{
				Field: fmt.Sprintf("channels[%d].kind", i), Message: "this installation sends no mail: EVERPOST_SMTP_URL is not set",
			})
		}
	}
	if len(refused.Fields) == 0 {
		return nil
	}
	return refused
}

func (h *notificationHandler) readChannels(d *jsonDecoder) []webhook.ChannelInput {
	var channels []webhook.ChannelInput
	d.array(func(i int) {
		if i == webhook.MaxChannels {
			d.noteParent("has more than " + strconv.Itoa(webhook.MaxChannels) + " entries")
		}
		if i >= webhook.MaxChannels {
			d.skip()
			return
		}
		channels = append(channels, h.readChannel(d))
	})
	return channels
}

func (h *notificationHandler) readChannel(d *jsonDecoder) (c webhook.ChannelInput) {
	var known, targeted bool
	d.object(func(raw []byte) {
		switch string(raw) {
		case "id":
			set(d, &c.ID, webhook.ChannelID{}, readChannelID)
		case "kind":
			c.Kind, known = readChannelKind(d)
		case "target":
			c.Target, targeted = d.str()
		case "on":
			c.Notices = readNotices(d)
		case "endpoint_ids":
			set(d, &c.EndpointIDs, nil, func(d *jsonDecoder) []webhook.EndpointID { return readEndpointIDs(d, webhook.MaxChannelEndpoints, "") })
		case "state", "last_error", "last_error_at", "last_told_at": // as GET shows them
			d.skip()
		default:
			d.unknown()
		}
	}, "kind", "target", "on")
	if known && targeted {
		h.checkTarget(d, &c)
	}
	return c
}

// checkTarget checks the target of a channel, of which its other fields are known.
func (h *notificationHandler) checkTarget(d *jsonDecoder, c *webhook.ChannelInput) {
	switch {
	case c.Target == webhook.Redacted && c.ID.IsZero():
		d.noteIn("target", "is redacted, which keeps the stored target of the channel with the id; there is no id")
	case c.Target == webhook.Redacted:
		c.Target = ""
	case c.Kind == webhook.ChannelEmail:
		if !webhook.ValidAddress(c.Target) {
			d.noteIn("target", "must be a mail address such as ops@example.com")
		}
	case len(c.Target) > webhook.MaxURLBytes:
		d.noteIn("target", "must not be longer than "+strconv.Itoa(webhook.MaxURLBytes)+" bytes")
	default:
		for _, wrong := range h.urls.CheckURL(c.Target) {
			d.noteIn("target", wrong)
		}
	}
}

func readChannelID(d *jsonDecoder) (id webhook.ChannelID) {
	text, ok := d.str()
	if !ok {
		return id
	}
	id, err := webhook.ParseChannelID(text)
	if err != nil {
		d.note(err.Error())
	}
	return id
}

func readChannelKind(d *jsonDecoder) (kind webhook.ChannelKind, ok bool) {
	name, ok := d.str()
	if !ok {
		return 0, false
	}
	for _, kind := range webhook.ChannelKinds() {
		if kind.String() == name {
			return kind, true
		}
	}
	d.note(`must be "email", "slack", "teams", "discord" or "webhook"`)
	return 0, false
}

func readNotices(d *jsonDecoder) (all webhook.Notices) {
	count := d.array(func(int) {
		name, ok := d.str()
		if !ok {
			return
		}
		var notice webhook.Notice
		switch {
		case notice.UnmarshalText([]byte(name)) != nil:
			d.note(`must be "failing", "disabling_soon", "disabled", "recovered", "dead_letters" or "backlog_expiring"`)
		case all.Has(notice):
			d.note("is listed more than once")
		default:
			all = all.With(notice)
		}
	})
	if count == 0 {
		d.note("must name at least one")
	}
	return all
}

// readPortalURL reads an address for people. It holds no credential: it stands in mails.
func readPortalURL(d *jsonDecoder) string {
	text, ok := d.str()
	if !ok {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || !printable(text, webhook.MaxURLBytes) || len(text) > webhook.MaxURLBytes {
		d.note("must be an https:// URL without credentials")
		return ""
	}
	return u.String()
}
