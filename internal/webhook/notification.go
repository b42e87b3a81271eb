package webhook

import (
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"
)

// Limits of the channels of a tenant, or of the installation.
const (
	MaxChannels         = 20
	MaxChannelEndpoints = 100
	MaxAddressBytes     = 254 // RFC 5321, section 4.5.3.1.3
	// MaxRefusals is how many mails in a row the mail server refuses for good until a channel bounces.
	MaxRefusals = 3
)

// NotificationType is the event type of the requests to chat channels.
const NotificationType = OperationalPrefix + "notification"

// Notice is what people are told of.
type Notice uint8

// The notices. Their numbers are stored.
const (
	NoticeFailing         Notice = iota // many requests to an endpoint fail
	NoticeDisablingSoon                 // the endpoint will be disabled if that goes on
	NoticeDisabled                      // it was disabled automatically
	NoticeRecovered                     // it takes requests again, after one of the above was told
	NoticeDeadLetters                   // once a day: deliveries were given up
	NoticeBacklogExpiring               // held deliveries will be given up
)

// AllNotices returns all in order.
func AllNotices() []Notice {
	return []Notice{NoticeFailing, NoticeDisablingSoon, NoticeDisabled, NoticeRecovered, NoticeDeadLetters, NoticeBacklogExpiring}
}

// String is the notice's name in the API.
func (n Notice) String() string {
	switch n {
	case NoticeFailing:
		return "failing"
	case NoticeDisablingSoon:
		return "disabling_soon"
	case NoticeDisabled:
		return "disabled"
	case NoticeRecovered:
		return "recovered"
	case NoticeDeadLetters:
		return "dead_letters"
	case NoticeBacklogExpiring:
		return "backlog_expiring"
	}
	return fmt.Sprintf("notice(%d)", uint8(n))
}

// MarshalText implements encoding.TextMarshaler.
func (n Notice) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Notice) UnmarshalText(text []byte) error {
	at := slices.IndexFunc(AllNotices(), func(known Notice) bool { return known.String() == string(text) })
	if at < 0 {
		return fmt.Errorf("%q is not a notice", text)
	}
	*n = AllNotices()[at]
	return nil
}

// Notices is a set of notices.
type Notices uint16

// With returns the set with a notice.
func (s Notices) With(n Notice) Notices { return s | 1<<n }

// Has reports whether the set has a notice.
func (s Notices) Has(n Notice) bool { return s&(1<<n) != 0 }

// List returns the notices of the set in order.
func (s Notices) List() []Notice {
	return slices.DeleteFunc(AllNotices(), func(n Notice) bool { return !s.Has(n) })
}

// ChannelKind is how a channel reaches people.
type ChannelKind uint8

// The kinds. Their numbers are stored.
const (
	ChannelEmail ChannelKind = iota
	ChannelSlack
	ChannelTeams
	ChannelDiscord
	ChannelWebhook
)

// ChannelKinds returns all kinds in order.
func ChannelKinds() []ChannelKind {
	return []ChannelKind{ChannelEmail, ChannelSlack, ChannelTeams, ChannelDiscord, ChannelWebhook}
}

// String is the kind's name in the API.
func (k ChannelKind) String() string {
	switch k {
	case ChannelEmail:
		return "email"
	case ChannelSlack:
		return "slack"
	case ChannelTeams:
		return "teams"
	case ChannelDiscord:
		return "discord"
	case ChannelWebhook:
		return "webhook"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ChannelState is whether a channel is used.
type ChannelState uint8

// The states. Only an active channel is told anything. Their numbers are stored.
const (
	ChannelUnconfirmed  ChannelState = iota // the owner of the address has not confirmed it
	ChannelActive                           // used
	ChannelBouncing                         // the mail server has refused MaxRefusals mails in a row
	ChannelUnsubscribed                     // the owner of the address wants no more mails
)

// String is the state's name in the API.
func (s ChannelState) String() string {
	switch s {
	case ChannelUnconfirmed:
		return "unconfirmed"
	case ChannelActive:
		return "active"
	case ChannelBouncing:
		return "bouncing"
	case ChannelUnsubscribed:
		return "unsubscribed"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Channel is a way to tell people of changes of endpoints.
type Channel struct {
	ID          ChannelID
	Kind        ChannelKind
	Address     string // of mail; "" for a chat, whose URL is a secret
	Notices     Notices
	EndpointIDs []EndpointID // nil: all
	State       ChannelState
	LastError   string // "" for none; without secrets
	LastErrorAt time.Time
	LastToldAt  time.Time // zero: nothing was sent yet; of a chat, none of its last deliveries
}

// ChannelInput is a channel as it is to be.
type ChannelInput struct {
	ID          ChannelID // zero: a channel with the same kind and target, or a new one
	Kind        ChannelKind
	Target      string // an address, or a URL; "" keeps what is stored, and needs ID
	Notices     Notices
	EndpointIDs []EndpointID // nil: all
}

// NotificationSettings are the channels of a tenant or of the installation.
type NotificationSettings struct {
	Channels  []Channel
	PortalURL string // a page of the operator's, for links; "" for none
}

// NotificationInput are the settings as they are to be.
type NotificationInput struct {
	Channels  []ChannelInput
	PortalURL string
}

// Notification is one thing that people are told. It is stored as JSON until it is sent: add fields, but never change the meaning of one.
type Notification struct {
	Notice   Notice     `json:"notice"`
	TenantID string     `json:"tenant_id"` // "" for a digest over all tenants
	Endpoint EndpointID `json:"endpoint_id,omitzero"`
	URL      string     `json:"url,omitempty"`         // of the endpoint, without what may be secret
	About    string     `json:"description,omitempty"` // the endpoint's description
	Summary  string     `json:"summary"`               // in sentences
	At       time.Time  `json:"at"`
}

// Told is what was told last of an endpoint.
type Told uint8

// What was told last. Their numbers are stored.
const (
	ToldNothing Told = iota
	ToldFailing
	ToldDisablingSoon
	ToldDisabled
	ToldResumed // it was told that the endpoint is disabled; a person has resumed it, and nothing is known of it since
)

// EndpointTold is what was told of an endpoint.
type EndpointTold struct {
	Last     Told
	Expiring time.Time // when it was told that held deliveries will be given up; zero: it was not
	At       time.Time // of Last
}

// EndpointFacts is what a look finds out about an endpoint that may be ill.
type EndpointFacts struct {
	ID          EndpointID
	TenantID    string
	URL         string // without what may be secret
	Description string
	State       EndpointState
	AutoDisable AutoDisable

	Observed    []Observation // by processes
	First       int           // first attempts of the last ten minutes
	FirstFailed int           // of these, those that failed
	DeliveredAt time.Time     // the end of the last minute of these with a delivered attempt; zero for none
	Streak      int           // permanent failures in a row
	Exhausted   int           // deliveries given up within 24 hours without a success
	HeldUntil   time.Time     // when the oldest held delivery is given up; zero: nothing is held
	GiveUpAfter time.Duration // of its retry policy

	Told EndpointTold
}

// DueMail is a mail that is to be sent now.
type DueMail struct {
	ID           [16]byte
	Channel      ChannelID
	Address      string
	Token        []byte        // of the channel's links; it is not stored
	Notification *Notification // nil: it asks for confirmation
	PortalURL    string        // of the channel's owner
	Attempts     int           // so far
	CreatedAt    time.Time
}

// ValidAddress reports whether a text is a mail address on its own, without a name: printable ASCII without quotes, so that it fits every mail
// server and ends no header.
func ValidAddress(text string) bool {
	parsed, err := mail.ParseAddress(text)
	return err == nil && parsed.Address == text && parsed.Name == "" && len(text) <= MaxAddressBytes && !strings.ContainsAny(text, "\"()<>,;:\\[] ") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
