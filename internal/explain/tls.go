package explain

import (
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// tlsCause is what mends a TLS failure whose error contains the phrase. The first that is found counts.
type tlsCause struct {
	phrase, remedy string
	authority      bool // the operator may trust another authority instead
}

func tlsCauses() []tlsCause {
	const hostInCertificate = "Give {receiver} a certificate with the host name {host} among its subject alternative names, or correct the endpoint's URL."
	return []tlsCause{
		{webhook.CertificateUnasked, "If {receiver} asks for the certificate by path, as Apache and IIS can, it needs TLS 1.2 for that: " +
			"set max_tls in the endpoint's client_certificate to 1.2.", false},
		{webhook.TLSCertificateMissing, "Set the endpoint's client_certificate.", false},
		{webhook.TLSCertificateRefused, "Check that {receiver} trusts the authority of the endpoint's client_certificate, and until when it is valid.", false},
		{webhook.TLSNoNames, hostInCertificate, false},
		{webhook.TLSOtherHost, hostInCertificate, false},
		{webhook.TLSExpired, "Renew the certificate, and have {receiver} load it.", false},
		{webhook.TLSNotYet, "Check the dates of the certificate, and the clocks.", false},
		{webhook.TLSNoIssuer, "Have {receiver} send its whole chain, with the intermediate certificates, " +
			"or give it a certificate of a public authority.", true},
		{webhook.TLSUntrusted, "Give {receiver} a certificate of a public authority.", true},
		{webhook.TLSSelfSigned, "Give {receiver} a certificate of a public authority.", true},
		{webhook.TLSWeak, "Give {receiver} a certificate that is signed with SHA-256 or better.", false},
		{webhook.TLSTooOld, "Let {receiver} offer TLS 1.2 or 1.3 with an ECDHE key exchange, " +
			"and check that no firewall on the way blocks the handshake.", false},
	}
}

// tlsCauseOf finds the cause that an attempt's error names.
func tlsCauseOf(text string) (tlsCause, bool) {
	for _, cause := range tlsCauses() {
		if strings.Contains(text, cause.phrase) {
			return cause, true
		}
	}
	return tlsCause{}, false
}

// operatorAfter is what only the operator of the installation can do about the reason and the error of an attempt.
func operatorAfter(reason, text string) string {
	switch reason {
	case string(retry.ReasonDeniedAddress):
		return "EVERPOST_ALLOWED_CIDRS allows ranges of addresses."
	case string(retry.ReasonProxyRefused):
		return checkProxy
	}
	if cause, ok := tlsCauseOf(text); ok && cause.authority {
		return "EVERPOST_CA_FILE names a file with authorities to trust beside the public ones."
	}
	return ""
}

// validity says when a certificate expired or becomes valid; "" for another error.
func validity(text string, now time.Time) string {
	for _, known := range [...][2]string{
		{webhook.TLSExpired, "certificate expired on "}, {webhook.TLSNotYet, "certificate is not valid before "},
	} {
		whose, limit, found := strings.Cut(text, known[0])
		if !found {
			continue
		}
		if t, err := time.Parse(time.RFC3339, limit); err == nil {
			return foreign(whose) + " " + known[1] + at(t, now)
		}
	}
	return ""
}
