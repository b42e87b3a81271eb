package webhook

// Themes of a portal.
const (
	ThemeAuto  = "auto" // as the reader's system
	ThemeLight = "light"
	ThemeDark  = "dark"
)

// The capabilities of a portal link, beside its access.
const (
	CapabilitySecrets = "secrets" // reveal signing secrets; with AccessManage, also make new ones
	CapabilityFilters = "filters" // try filters; with AccessManage, also set those of endpoints
	CapabilityReplay  = "replay"  // send deliveries again
)

// MaxLanguageTag is the length of a language of a link, in bytes.
const MaxLanguageTag = 35 // RFC 5646 section 4.4.1

// PortalOptions are what a portal link permits beside its access, and how its pages look. Its JSON is stored.
type PortalOptions struct {
	Secrets    bool   `json:"secrets,omitempty"`
	Filters    bool   `json:"filters,omitempty"`
	Replay     bool   `json:"replay,omitempty"`
	Lang       string `json:"lang,omitempty"`        // a language tag; "": the browser's choice
	Theme      string `json:"theme,omitempty"`       // "" is ThemeAuto
	Embed      bool   `json:"embed,omitempty"`       // without a header, for a frame
	RefreshURL string `json:"refresh_url,omitempty"` // where a new link is to be had after the session has ended; "" for nowhere
}

// Capabilities are the names of what the options permit.
func (o PortalOptions) Capabilities() []string {
	names := []string{}
	if o.Secrets {
		names = append(names, CapabilitySecrets)
	}
	if o.Filters {
		names = append(names, CapabilityFilters)
	}
	if o.Replay {
		names = append(names, CapabilityReplay)
	}
	return names
}
