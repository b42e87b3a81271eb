package config

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
)

// Secret is what Shown has for a secret that is set.
const Secret = "set"

// Shown returns the settings in force by their variables, for people: without secrets, and URLs without credentials and query. "" is a
// setting without a value. Files have their whole path, so that two processes can be compared.
func Shown(c Config) map[string]string {
	shown := map[string]string{}
	value := reflect.ValueOf(c)
	for _, field := range reflect.VisibleFields(value.Type()) {
		if variable := field.Tag.Get("env"); variable != "" {
			shown[variable] = shownValue(field.Tag, value.FieldByIndex(field.Index))
		}
	}
	return shown
}

func shownValue(tag reflect.StructTag, value reflect.Value) string {
	if tag.Get("credential") != "" {
		if value.IsZero() {
			return ""
		}
		return Secret
	}
	asText := withoutCredentials
	if strings.HasPrefix(tag.Get("placeholder"), "FILE") {
		asText = wholePath
	}
	switch v := value.Interface().(type) {
	case string:
		return asText(v)
	case []string:
		all := make([]string, len(v))
		for i, one := range v {
			all[i] = asText(one)
		}
		return strings.Join(all, ",")
	case []netip.Prefix:
		all := make([]string, len(v))
		for i, one := range v {
			all[i] = one.String()
		}
		return strings.Join(all, ",")
	case RetryPolicy:
		text, err := json.Marshal(v.Policy)
		if err != nil { // no policy is without a form in JSON
			return err.Error()
		}
		return string(text)
	default:
		return fmt.Sprint(v)
	}
}

// withoutCredentials is a text, or a URL without what may be secret; a URL that cannot be read is not shown.
func withoutCredentials(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil {
		return Secret
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}

func wholePath(file string) string {
	if file == "" {
		return ""
	}
	whole, err := filepath.Abs(file)
	if err != nil {
		return file
	}
	return whole
}
