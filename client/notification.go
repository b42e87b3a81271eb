package client

import (
	"context"
	"net/http"
)

// Notifications are whom a tenant, or the installation, tells of changes of endpoints.
type Notifications struct {
	Channels  []NotificationChannel `json:"channels"`
	PortalURL *string               `json:"portal_url"` // a page of your own that messages link to
}

// NotificationChannel is a way to tell people.
type NotificationChannel struct {
	ID          string   `json:"id"`
	Kind        string   `json:"kind"`         // "email", "slack", "teams", "discord" or "webhook"
	Target      string   `json:"target"`       // the address; of the other kinds "[redacted]"
	On          []string `json:"on"`           // what it is told of
	EndpointIDs []string `json:"endpoint_ids"` // none for all endpoints
	State       string   `json:"state"`        // "unconfirmed", "active", "bouncing" or "unsubscribed"
	LastError   *string  `json:"last_error"`   // nil if the last message was sent
	LastErrorAt Time     `json:"last_error_at"`
	LastToldAt  Time     `json:"last_told_at"` // zero if nothing was sent yet, or of a chat lately
}

// NotificationsInput are the channels as they are to be.
type NotificationsInput struct {
	Channels  []NotificationChannelInput `json:"channels"`
	PortalURL string                     `json:"portal_url,omitzero"`
}

// NotificationChannelInput is a channel as it is to be. Target "[redacted]" keeps the stored one of the channel with the ID.
type NotificationChannelInput struct {
	ID          string   `json:"id,omitzero"` // "": the channel with this kind and target, or a new one
	Kind        string   `json:"kind"`
	Target      string   `json:"target"`
	On          []string `json:"on"`
	EndpointIDs []string `json:"endpoint_ids,omitzero"` // nil: all endpoints
}

// Notifications reads whom the tenant tells of changes of its endpoints.
func (t TenantCalls) Notifications(ctx context.Context) (Notifications, error) {
	return get[Notifications](ctx, t.at("notifications"), nil)
}

// PutNotifications replaces all channels of the tenant. A new mail address has to be confirmed by its owner first.
func (t TenantCalls) PutNotifications(ctx context.Context, in NotificationsInput) (Notifications, error) {
	return send[Notifications](ctx, t.at("notifications"), http.MethodPut, in)
}

// Notifications reads whom the installation tells of changes of all tenants' endpoints. It needs an operator's key.
func (c *Client) Notifications(ctx context.Context) (Notifications, error) {
	return get[Notifications](ctx, scope{c, []string{"notifications"}}, nil)
}

// PutNotifications replaces all channels of the installation. It needs an operator's key.
func (c *Client) PutNotifications(ctx context.Context, in NotificationsInput) (Notifications, error) {
	return send[Notifications](ctx, scope{c, []string{"notifications"}}, http.MethodPut, in)
}
