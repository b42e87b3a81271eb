package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// Each cause of a TLS failure has its own remedy, while the delivery is retried and wherever else the failure is named.
func TestRemediesOfTLS(t *testing.T) {
	t.Parallel()
	const caFile = "EVERPOST_CA_FILE"
	for text, want := range map[string]struct{ reason, cause, remedy, operator string }{
		"tls_invalid: " + webhook.TLSNoNames + ` (subject alternative names), only the common name "shop"`: {
			"tls_invalid", `only the common name "shop".`, "host name shop.example among its subject alternative names", "",
		},
		"tls_invalid: " + webhook.TLSOtherHost + `; it is for "a.example"`: {"tls_invalid", `it is for "a.example".`, "subject alternative names", ""},
		"tls_invalid: the " + webhook.TLSExpired + "2026-11-21T00:00:00Z": {
			"tls_invalid", "The certificate expired on 21 Nov 00:00 UTC.", "Renew the certificate", "",
		},
		`tls_invalid: the issuer's "R3" ` + webhook.TLSExpired + "2026-11-21T00:00:00Z": {
			"tls_invalid", `The issuer's "R3" certificate expired on 21 Nov 00:00 UTC.`, "Renew the certificate", "",
		},
		"tls_invalid: " + webhook.TLSNoIssuer + `: the receiver sent no certificate of the issuer "R3"`: {
			"tls_invalid", `the issuer "R3".`, "whole chain", caFile,
		},
		"tls_invalid: " + webhook.TLSUntrusted + `: "private"`: {"tls_invalid", `"private".`, "public authority", caFile},
		"tls_invalid: " + webhook.TLSSelfSigned:                {"tls_invalid", "self-signed.", "public authority", caFile},
		"tls_invalid: remote error: tls: handshake failure; the receiver " + webhook.TLSTooOld: {
			"tls_invalid", "only older versions or key exchanges.", "ECDHE", "",
		},
		"unexpected_eof: the connection was closed during the TLS handshake, before the receiver sent anything; it " + webhook.TLSTooOld: {
			"unexpected_eof", "during the TLS handshake", "ECDHE", "",
		},
		"unexpected_eof: the connection was closed before the answer was complete": {
			"unexpected_eof", "before it had answered.", "its load balancer and firewall", "",
		},
		"timeout_tls: the receiver sent nothing in the TLS handshake": {"timeout_tls", "The TLS handshake was not over", "firewall on the way", ""},
		"tls_invalid: remote error: tls: certificate required; " + webhook.TLSCertificateMissing: {
			"tls_invalid", "the endpoint has none.", "Set the endpoint's client_certificate.", "",
		},
		webhook.CertificateUnasked: {"http_403", "The TLS 1.3 handshake did not ask for the endpoint's client certificate.", "max_tls", ""},
		"":                         {"http_403", "answered 403 (Forbidden).", "Check the endpoint's credentials", ""},
	} {
		e := shop()
		s := Situation{Now: noon(), Delivery: retrying(want.reason), Endpoint: &e, Error: text}
		got := s.retrying()
		require.Contains(t, got.Cause, want.cause, text)
		require.Contains(t, got.Remedy, want.remedy, text)
		require.NotContains(t, got.Remedy+got.Cause, "answer at once", text)
		require.NotContains(t, got.Remedy, caFile, "a setting of the installation is for its operator")
		if want.operator == "" {
			require.Empty(t, got.Operator, text)
		} else {
			require.Contains(t, got.Operator, want.operator, text)
		}
	}
}
