package console

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	notificationsTitle     = "Notifications"
	operatorsNotifiedTitle = "Notifications to operators"
)

// channelPlace is where the channels are of the page's tenant, or of the installation on a page about no tenant.
type channelPlace struct {
	api   string // the path of the API
	page  string // that of the list
	title string // also the entry of the navigation
}

func channelsAt(p *page) channelPlace {
	if p.tenant == "" {
		return channelPlace{apiPath("notifications"), Root + "/notifications", operatorsNotifiedTitle}
	}
	return channelPlace{p.path("notifications"), p.to("notifications"), notificationsTitle}
}

func (at channelPlace) read(p *page) (now client.Notifications, err error) {
	err = p.api.get(p.r.Context(), &now, nil, at.api)
	return now, err
}

// put replaces the channels. In an error, the fields of the channel that the form is about have the form's names; none: -1.
func (at channelPlace) put(p *page, channels []client.NotificationChannelInput, portal string, about int) error {
	err := p.api.send(p.r.Context(), nil, http.MethodPut, at.api, client.NotificationsInput{Channels: channels, PortalURL: portal})
	known, ok := errors.AsType[*problem](err)
	if !ok {
		return err
	}
	for i := range known.Errors {
		place, field, _ := strings.Cut(strings.TrimPrefix(known.Errors[i].Field, "channels["), "].")
		switch n, err := strconv.Atoi(place); {
		case err != nil || n < 0 || n >= len(channels): // of the whole
		case n == about:
			known.Errors[i].Field = field
		default:
			known.Errors[i].Field = "The channel " + channels[n].Kind + " " + visible(channels[n].Target) + ":"
		}
	}
	return known
}

// inputsOf are channels as they are, for the API.
func inputsOf(now client.Notifications) []client.NotificationChannelInput {
	channels := make([]client.NotificationChannelInput, len(now.Channels))
	for i, c := range now.Channels {
		channels[i] = client.NotificationChannelInput{ID: c.ID, Kind: c.Kind, Target: c.Target, On: c.On, EndpointIDs: c.EndpointIDs}
	}
	return channels
}

// notificationsView is the list of channels, with the form of the page that messages link to.
type notificationsView struct {
	Base     string // the path of the list
	Channels []client.NotificationChannel
	Names    endpointNames
	Form     form
	Full     bool // there is no room for another one
}

// OfTenant reports whether they are a tenant's.
func (v notificationsView) OfTenant() bool { return v.Base != Root+"/notifications" }

func listChannels(p *page) error {
	now, err := channelsAt(p).read(p)
	if err != nil {
		return err
	}
	return showChannels(p, now, newForm("portal_url", value(now.PortalURL)))
}

func showChannels(p *page, now client.Notifications, f form) error {
	at := channelsAt(p)
	v := notificationsView{Base: at.page, Channels: now.Channels, Form: f, Full: len(now.Channels) >= webhook.MaxChannels}
	var told []string
	for _, c := range now.Channels {
		told = append(told, c.EndpointIDs...)
	}
	if p.tenant != "" && len(told) > 0 {
		var err error
		if v.Names, err = readNamesOf(p, told, func(id string) string { return id }); err != nil {
			return err
		}
	}
	return p.show(view{Template: "notifications", Title: at.title, Entry: at.title, Status: f.status(), Data: v})
}

// changePortalURL changes the page that messages link to.
func changePortalURL(p *page) error {
	at := channelsAt(p)
	now, err := at.read(p)
	if err != nil {
		return err
	}
	if err := at.put(p, inputsOf(now), strings.TrimSpace(p.typed.Get("portal_url")), -1); err != nil {
		f, err := newForm("portal_url", "").refused(p.typed, err)
		if err != nil {
			return err
		}
		return showChannels(p, now, f)
	}
	return p.done(at.page, "The page that messages link to is changed.")
}

// findChannel returns the channels, and which of them the page is about.
func findChannel(p *page) (now client.Notifications, i int, err error) {
	now, err = channelsAt(p).read(p)
	if err != nil {
		return now, 0, err
	}
	i = slices.IndexFunc(now.Channels, func(c client.NotificationChannel) bool { return c.ID == p.r.PathValue("id") })
	if i < 0 {
		return now, 0, refusal(http.StatusNotFound, "there is no such channel")
	}
	return now, i, nil
}

// channelWords names a channel in a sentence. Targets of chats are secrets, which the API does not show.
func channelWords(c client.NotificationChannel) string {
	if c.Kind == webhook.ChannelEmail.String() {
		return visible(c.Target)
	}
	return "the channel " + c.ID + " (" + c.Kind + ")"
}

func askRemoveChannel(p *page) error {
	now, i, err := findChannel(p)
	if err != nil {
		return err
	}
	at := channelsAt(p)
	return p.ask("Remove a channel", at.title, question{
		Question: "Tell " + channelWords(now.Channels[i]) + " nothing more?",
		Detail:   "The channel is removed, with what waits to be sent to it. An address that is added again has to be confirmed again.",
		Button:   "Remove", Back: at.page, Danger: true,
	})
}

func removeChannel(p *page) error {
	now, i, err := findChannel(p)
	if err != nil {
		return err
	}
	at := channelsAt(p)
	if err := at.put(p, slices.Delete(inputsOf(now), i, i+1), value(now.PortalURL), -1); err != nil {
		return fieldsInDetail(err)
	}
	return p.done(at.page, "The channel is removed.")
}

// confirmAgain asks the owner of an address once more to confirm it: the API does so with every change.
func confirmAgain(p *page) error {
	now, i, err := findChannel(p)
	if err != nil {
		return err
	}
	at := channelsAt(p)
	if now.Channels[i].State != webhook.ChannelUnconfirmed.String() {
		return p.done(at.page, "The channel needs no confirmation.")
	}
	if err := at.put(p, inputsOf(now), value(now.PortalURL), -1); err != nil {
		return fieldsInDetail(err)
	}
	return p.done(at.page, "A mail with a link to confirm goes to "+visible(now.Channels[i].Target)+", unless one was sent within an hour.")
}

// fieldsInDetail is a refusal of a page without fields, which says what is wrong with those of the request.
func fieldsInDetail(err error) error {
	known, ok := errors.AsType[*problem](err)
	if !ok || len(known.Errors) == 0 {
		return err
	}
	var said []string
	for _, f := range known.Errors {
		said = append(said, f.Field+" "+f.Message)
	}
	known.Detail, known.Errors = strings.Join(said, "; "), nil
	return known
}
