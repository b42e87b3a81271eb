package webhook

// Phrases in the errors of attempts that failed in TLS. Package egress writes them, and package explain finds a remedy by them.
const (
	TLSOtherHost  = "the certificate is for another host"
	TLSNoNames    = "the certificate has no names"
	TLSExpired    = "certificate expired at "          // RFC 3339
	TLSNotYet     = "certificate is not valid before " // RFC 3339
	TLSNoIssuer   = "an intermediate certificate is missing, or the authority is not trusted"
	TLSUntrusted  = "the authority is not trusted"
	TLSSelfSigned = "the certificate is self-signed"
	TLSWeak       = "is signed with SHA-1 or MD5"
	TLSTooOld     = "may support only older versions or key exchanges"

	TLSCertificateMissing = "the receiver asked for a client certificate, and the endpoint has none"
	TLSCertificateRefused = "the receiver did not accept the client certificate"
)

// CertificateUnasked is the Error of an attempt that was answered with 401 or 403 on a connection of TLS 1.3 whose handshake did
// not ask for the endpoint's client certificate.
const CertificateUnasked = "client_certificate: the TLS 1.3 handshake did not ask for it"
