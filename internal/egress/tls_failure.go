package egress

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// tlsFailure recognises TLS errors in any phase: with TLS 1.3 a receiver that requires a
// client certificate reports it only after the handshake.
func tlsFailure(err error) (retry.Failure, string, bool) {
	of := &sessionError{}
	if known, ok := errors.AsType[*sessionError](err); ok {
		of = known
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return retry.FailureTLS, certificateCause(certificate, time.Now()), true
	}
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return retry.FailureTLS, record.Msg + "; this port may be for plain HTTP", true
	}
	op, ok := errors.AsType[*net.OpError](err)
	if ok && (op.Op == "remote error" || op.Op == "local error") { // how crypto/tls marks alerts
		text := op.Op + ": " + op.Err.Error()
		if why := alertCause(op.Op == "remote error", strings.TrimPrefix(op.Err.Error(), "tls: "), of.session); why != "" {
			text += "; " + why
		}
		return retry.FailureTLS, text, true
	}
	if text := innermost(err); strings.HasPrefix(text, "tls: server selected unsupported") || strings.HasPrefix(text, "tls: server chose an unconfigured") {
		return retry.FailureTLS, text + "; the receiver " + webhook.TLSTooOld, true
	}
	return retry.FailureNone, "", false
}

// alertCause says what an alert probably means; "" if nothing more than its text does.
func alertCause(remote bool, alert string, s session) string {
	switch {
	case !remote && alert == "no renegotiation" && s.offered:
		return "the receiver asked for the client certificate more than once"
	case alert == "no renegotiation":
		return webhook.TLSCertificateMissing
	case !remote:
		return ""
	}
	switch alert {
	case "protocol version not supported", "insufficient security level":
		return "the receiver " + webhook.TLSTooOld
	case "unrecognized name":
		return "the receiver does not know the name of this host"
	case "handshake failure", "bad certificate", "unsupported certificate", "revoked certificate", "expired certificate",
		"unknown certificate", "unknown certificate authority", "access denied", "certificate required":
		switch {
		case s.asked && s.offered:
			return webhook.TLSCertificateRefused
		case s.asked:
			return webhook.TLSCertificateMissing
		case alert == "handshake failure":
			return "the receiver " + webhook.TLSTooOld
		}
	}
	return ""
}

// certificateCause says what is wrong with the receiver's certificate.
func certificateCause(err *tls.CertificateVerificationError, now time.Time) string {
	if host, ok := errors.AsType[x509.HostnameError](err.Err); ok {
		return hostCause(host.Certificate)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err.Err); ok && invalid.Reason == x509.Expired {
		return datesCause(invalid.Cert, err.UnverifiedCertificates, now)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err.Err); ok && len(err.UnverifiedCertificates) > 0 {
		return issuerCause(err.UnverifiedCertificates, now)
	}
	return innermost(err.Err)
}

// maxListedNames bounds the names of a certificate in an error, in bytes together.
const maxListedNames = 120

// hostCause names the certificate's names: one sees by them whose it is.
func hostCause(leaf *x509.Certificate) string {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		cause := webhook.TLSNoNames + " (subject alternative names)"
		if leaf.Subject.CommonName != "" {
			cause += ", only the common name " + shown(leaf.Subject.CommonName) + ", which nothing reads any more"
		}
		return cause
	}
	text := ""
	for i, name := range names {
		next := text
		if i > 0 {
			next += ", "
		}
		next += shown(name)
		if i > 0 && len(next) > maxListedNames {
			return fmt.Sprintf("%s; it is for %s and %d more", webhook.TLSOtherHost, text, len(names)-i)
		}
		text = next
	}
	return webhook.TLSOtherHost + "; it is for " + text
}

// datesCause says which certificate is outside its dates, and since when.
func datesCause(invalid *x509.Certificate, chain []*x509.Certificate, now time.Time) string {
	which := "the "
	if len(chain) > 0 && !chain[0].Equal(invalid) {
		which = "the issuer's " + shown(invalid.Subject.CommonName) + " "
	}
	if now.Before(invalid.NotBefore) {
		return which + webhook.TLSNotYet + invalid.NotBefore.UTC().Format(time.RFC3339)
	}
	return which + webhook.TLSExpired + invalid.NotAfter.UTC().Format(time.RFC3339)
}

// issuerCause says why no trusted authority was found above the first certificate of a chain. It follows the issuers through what
// the receiver sent.
func issuerCause(chain []*x509.Certificate, now time.Time) string {
	top := chain[0]
	for range chain {
		if weak(top.SignatureAlgorithm) && !selfIssued(top) {
			return "the certificate of " + shown(subjectOf(top)) + " " + webhook.TLSWeak + ", which is not accepted any more"
		}
		if top != chain[0] && (now.After(top.NotAfter) || now.Before(top.NotBefore)) {
			return datesCause(top, chain, now)
		}
		if selfIssued(top) {
			break
		}
		next := issuerIn(chain, top)
		if next == nil {
			return webhook.TLSNoIssuer + ": the receiver sent no certificate of the issuer " + shown(top.Issuer.CommonName)
		}
		top = next
	}
	if top == chain[0] {
		return webhook.TLSSelfSigned
	}
	return webhook.TLSUntrusted + ": " + shown(subjectOf(top))
}

func selfIssued(c *x509.Certificate) bool { return bytes.Equal(c.RawIssuer, c.RawSubject) }

func issuerIn(chain []*x509.Certificate, of *x509.Certificate) *x509.Certificate {
	for _, c := range chain {
		if c != of && bytes.Equal(c.RawSubject, of.RawIssuer) {
			return c
		}
	}
	return nil
}

func weak(a x509.SignatureAlgorithm) bool {
	return a == x509.SHA1WithRSA || a == x509.ECDSAWithSHA1 || a == x509.DSAWithSHA1 || a == x509.MD5WithRSA || a == x509.MD2WithRSA
}

// subjectOf is a name by which people know a certificate.
func subjectOf(c *x509.Certificate) string {
	switch {
	case c.Subject.CommonName != "":
		return c.Subject.CommonName
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	}
	return c.Subject.String()
}

// shown is a name from a certificate, which may be anything, in quotation marks and at most 64 bytes.
func shown(name string) string {
	const most = 60
	name = strings.ReplaceAll(strings.ToValidUTF8(name, " "), `"`, "'")
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return `"` + name + `"`
}
