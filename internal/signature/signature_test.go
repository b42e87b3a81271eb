package signature_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/signature"
)

// Known answers, from the Standard Webhooks libraries.
const (
	knownID      = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	knownUnix    = 1614265330
	knownBody    = `{"test": 2432232314}`
	knownHMAC    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	knownPrivate = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	knownPublic  = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
	answerHMAC   = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	answerEd     = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
)

func secret(t testing.TB, text string) signature.Secret {
	t.Helper()
	parsed, err := signature.ParseSecret(text)
	require.NoError(t, err)

	return parsed
}

// repeatable is a deterministic source of randomness.
func repeatable(seed uint64) *rand.ChaCha8 {
	return rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
}

func known(header string) signature.Message {
	return signature.Message{
		ID: knownID, Timestamp: strconv.Itoa(knownUnix), Signature: header, Body: []byte(knownBody),
	}
}

func TestKnownAnswers(t *testing.T) {
	t.Parallel()

	at := time.Unix(knownUnix, 999_999_999)
	hm, ed := secret(t, knownHMAC), secret(t, knownPrivate)
	sign := func(secrets ...signature.Secret) string {
		return signature.Sign(knownID, at, []byte(knownBody), secrets...)
	}
	require.Equal(t, answerHMAC, sign(hm))
	require.Equal(t, answerEd, sign(ed))
	require.Equal(t, answerHMAC+" "+answerEd, sign(hm, ed))
	require.Equal(t, answerEd+" "+answerHMAC+" "+answerEd, sign(ed, hm, ed))
	require.Empty(t, sign())
	require.Equal(t, answerHMAC, sign(signature.Secret{}, hm, signature.Secret{}))

	public, ok := ed.Public()
	require.True(t, ok)
	require.Equal(t, knownPublic, public.String())
	parsed, err := signature.ParsePublicKey(knownPublic)
	require.NoError(t, err)
	require.Equal(t, public, parsed)
	_, ok = hm.Public()
	require.False(t, ok)
	require.Equal(t, signature.HMAC, hm.Kind())
	require.Equal(t, signature.Ed25519, ed.Kind())
}

func TestSignHex(t *testing.T) {
	t.Parallel()

	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(knownHMAC, "whsec_"))
	require.NoError(t, err)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(knownBody))

	header, err := signature.SignHex([]byte(knownBody), secret(t, knownHMAC))
	require.NoError(t, err)
	require.Equal(t, "sha256="+hex.EncodeToString(mac.Sum(nil)), header)

	require.NoError(t, signature.VerifyHex(header, []byte(knownBody), secret(t, knownHMAC)))
	require.ErrorIs(t, signature.VerifyHex("", []byte(knownBody), secret(t, knownHMAC)), signature.ErrMissingHeader)
	for _, bad := range []string{header[1:], header[:len(header)-2], header + "00", "sha256=", strings.TrimPrefix(header, "sha256=")} {
		require.ErrorIs(t, signature.VerifyHex(bad, []byte(knownBody), secret(t, knownHMAC)), signature.ErrNoMatch)
	}
	require.ErrorIs(t, signature.VerifyHex(header, []byte("other"), secret(t, knownHMAC)), signature.ErrNoMatch)

	for _, wrong := range []signature.Secret{{}, secret(t, knownPrivate)} {
		_, err = signature.SignHex([]byte(knownBody), wrong)
		require.ErrorIs(t, err, signature.ErrNoHMACSecret)
		require.ErrorIs(t, signature.VerifyHex(header, []byte(knownBody), wrong), signature.ErrNoHMACSecret)
	}
}

// TestForeignLibraryAgrees: the reference implementation verifies our signatures, and we verify
// its signatures.
func TestForeignLibraryAgrees(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		ours, err := signature.GenerateHMAC(repeatable(rapid.Uint64().Draw(t, "seed")))
		require.NoError(t, err)
		older, err := signature.GenerateHMAC(repeatable(rapid.Uint64().Draw(t, "older seed") | 1<<15))
		require.NoError(t, err)
		foreign, err := standardwebhooks.NewWebhook(ours.Reveal())
		require.NoError(t, err)

		id := "evt_" + rapid.StringMatching(`[a-z0-9]{1,200}`).Draw(t, "id")
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		at := time.Unix(rapid.Int64Range(0, 1<<40).Draw(t, "at"), 0)
		text := strconv.FormatInt(at.Unix(), 10)

		for _, secrets := range [][]signature.Secret{{ours}, {ours, older}, {older, ours}} {
			header := signature.Sign(id, at, body, secrets...)
			require.NoError(t, foreign.VerifyIgnoringTimestamp(body, http.Header{
				"Webhook-Id": {id}, "Webhook-Timestamp": {text}, "Webhook-Signature": {header},
			}))
		}
		header, err := foreign.Sign(id, at, body)
		require.NoError(t, err)
		message := signature.Message{ID: id, Timestamp: text, Signature: header, Body: body}
		require.NoError(t, signature.Verify(message, at, 0, older, ours))
	})
}

func TestVerify(t *testing.T) {
	t.Parallel()

	at := time.Unix(knownUnix, 0)
	hm, ed := secret(t, knownHMAC), secret(t, knownPrivate)
	public, err := signature.ParsePublicKey(knownPublic)
	require.NoError(t, err)
	other, err := signature.GenerateHMAC(repeatable(1))
	require.NoError(t, err)
	otherEd, err := signature.GenerateEd25519(repeatable(1))
	require.NoError(t, err)

	require.NoError(t, signature.Verify(known(answerHMAC), at, 0, hm))
	require.NoError(t, signature.Verify(known(answerEd), at, 0, ed))
	require.NoError(t, signature.Verify(known(answerEd), at, 0, public))
	require.NoError(t, signature.Verify(known("v1,AAAA v9,x rubbish  "+answerHMAC), at, 0, other, hm))
	require.NoError(t, signature.Verify(known(strings.Repeat("v1,AAAA ", 15)+answerHMAC), at, 0, hm))

	for name, message := range map[string]signature.Message{
		"wrong version":   known(strings.Replace(answerHMAC, "v1,", "v1a,", 1)),
		"no version":      known(strings.TrimPrefix(answerHMAC, "v1,")),
		"cut off":         known(answerHMAC[:len(answerHMAC)-4]),
		"longer":          known(answerHMAC + "AAAA"),
		"not canonical":   known("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OF="),
		"only separators": known(" , , "),
		"too many":        known(strings.Repeat("v1,AAAA ", 16) + answerHMAC),
		"other id":        {ID: knownID + "x", Timestamp: "1614265330", Signature: answerHMAC, Body: []byte(knownBody)},
		"other time":      {ID: knownID, Timestamp: "1614265331", Signature: answerHMAC, Body: []byte(knownBody)},
		"other body":      {ID: knownID, Timestamp: "1614265330", Signature: answerHMAC, Body: []byte(knownBody + " ")},
		"other key's":     known(answerEd),
	} {
		require.ErrorIs(t, signature.Verify(message, at, 0, hm), signature.ErrNoMatch, name)
	}
	require.ErrorIs(t, signature.Verify(known(answerHMAC), at, 0, other, ed, public), signature.ErrNoMatch)
	require.ErrorIs(t, signature.Verify(known(answerEd), at, 0, otherEd, hm), signature.ErrNoMatch)
	require.ErrorIs(t, signature.Verify(known(answerHMAC), at, 0), signature.ErrNoMatch)
	require.ErrorIs(t, signature.Verify(known(answerHMAC+" v1, v1a,"), at, 0, signature.Secret{}, signature.PublicKey{}), signature.ErrNoMatch)

	for _, missing := range []signature.Message{
		{Timestamp: "1614265330", Signature: answerHMAC}, {ID: knownID, Signature: answerHMAC}, {ID: knownID, Timestamp: "1614265330"},
	} {
		require.ErrorIs(t, signature.Verify(missing, at, 0, hm), signature.ErrMissingHeader)
	}
	for _, bad := range []string{"x", "1614265330.0", "+1614265330", "01614265330", " 1614265330", "99999999999999999999"} {
		message := known(answerHMAC)
		message.Timestamp = bad
		require.ErrorIs(t, signature.Verify(message, at, -1, hm), signature.ErrBadTimestamp, bad)
	}
}

func TestVerifyTolerance(t *testing.T) {
	t.Parallel()

	hm := secret(t, knownHMAC)
	for _, row := range []struct {
		offset    time.Duration // of the verifier's clock
		tolerance time.Duration
		want      error
	}{
		{0, time.Second, nil},
		{5 * time.Minute, 0, nil},
		{-5 * time.Minute, 0, nil},
		{5*time.Minute + time.Second, 0, signature.ErrTooOld},
		{-5*time.Minute - time.Second, 0, signature.ErrTooNew},
		{11 * time.Second, 10 * time.Second, signature.ErrTooOld},
		{-11 * time.Second, 10 * time.Second, signature.ErrTooNew},
		{100 * 365 * 24 * time.Hour, -1, nil},
	} {
		err := signature.Verify(known(answerHMAC), time.Unix(knownUnix, 0).Add(row.offset), row.tolerance, hm)
		if row.want == nil {
			require.NoError(t, err, row)
		} else {
			require.ErrorIs(t, err, row.want, row)
		}
	}

	message := known(answerHMAC)
	message.Timestamp = "9223372036854775807"
	require.ErrorIs(t, signature.Verify(message, time.Unix(knownUnix, 0), 0, hm), signature.ErrTooNew)
	message.Timestamp = "-9223372036854775808"
	require.ErrorIs(t, signature.Verify(message, time.Unix(knownUnix, 0), 0, hm), signature.ErrTooOld)
}

func TestParseSecretRefuses(t *testing.T) {
	t.Parallel()

	encoded := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xa5}, n)) }
	for n := range 100 {
		_, err := signature.ParseSecret("whsec_" + encoded(n))
		require.Equal(t, n >= 24 && n <= 64, err == nil, "%d bytes", n)
		_, err = signature.ParseSecret("whsk_" + encoded(n))
		require.ErrorIs(t, err, signature.ErrMalformedKey, "%d bytes, and 64 of them do not belong together", n)
		_, err = signature.ParsePublicKey("whpk_" + encoded(n))
		require.Equal(t, n == 32, err == nil, "%d bytes", n)
	}
	for _, text := range []string{
		"", "whsec_", "whsec", encoded(32), "WHSEC_" + encoded(32), " whsec_" + encoded(32), "whsec_" + encoded(32) + "\n",
		"whsec_" + encoded(24)[:16] + "\r\n" + encoded(24)[16:],
		"whsec_" + strings.TrimRight(encoded(32), "="), "whsec_" + strings.Repeat("_", 32), "whsec_" + encoded(32)[:42] + "B=",
		"whpk_" + encoded(32), knownPublic, strings.Replace(knownPrivate, "Kvg==", "Kvw==", 1),
		strings.Replace(knownPrivate, "6Xb/", "6Xc/", 1),
	} {
		got, err := signature.ParseSecret(text)
		require.ErrorIs(t, err, signature.ErrMalformedKey, text)
		require.True(t, got.IsZero())
		if payload := strings.TrimPrefix(text, "whsec_"); len(payload) > 8 {
			require.NotContains(t, err.Error(), payload[:8])
		}
	}
	_, err := signature.ParsePublicKey(knownPrivate)
	require.ErrorIs(t, err, signature.ErrMalformedKey)
}

func TestGenerate(t *testing.T) {
	t.Parallel()

	for kind, generate := range map[string]func(seed uint64) (signature.Secret, error){
		"whsec_": func(seed uint64) (signature.Secret, error) { return signature.GenerateHMAC(repeatable(seed)) },
		"whsk_":  func(seed uint64) (signature.Secret, error) { return signature.GenerateEd25519(repeatable(seed)) },
	} {
		one, err := generate(1)
		require.NoError(t, err)
		same, err := generate(1)
		require.NoError(t, err)
		other, err := generate(2)
		require.NoError(t, err)
		require.True(t, one.Equal(same))
		require.False(t, one.Equal(other))
		require.False(t, one.Equal(signature.Secret{}))
		require.True(t, strings.HasPrefix(one.Reveal(), kind))
		require.True(t, one.Equal(secret(t, one.Reveal())))
	}

	broken := errors.New("no entropy")
	for _, source := range []*bytes.Reader{bytes.NewReader(nil), bytes.NewReader(make([]byte, 31))} {
		_, err := signature.GenerateHMAC(source)
		require.Error(t, err)
	}
	_, err := signature.GenerateEd25519(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

// TestSecretsDoNotShow prints secrets in every possible way and searches the output for them.
func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()

	for _, text := range []string{knownHMAC, knownPrivate} {
		hidden := secret(t, text)
		nested := struct {
			Name   string
			Secret signature.Secret
			Many   []signature.Secret
			Key    signature.Key
			inner  signature.Secret
			inners map[string]*signature.Secret
		}{"n", hidden, []signature.Secret{hidden}, hidden, hidden, map[string]*signature.Secret{"x": &hidden}}

		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%08.3f"} {
			_, _ = fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", hidden, &hidden, nested)
		}
		for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
			slog.New(handler).Info("x", "secret", hidden, "pointer", &hidden, "nested", nested)
		}
		_, err := json.Marshal(nested) //nolint:musttag // it is refused
		require.ErrorIs(t, err, signature.ErrNotSerialisable)
		out.WriteString(err.Error())
		require.Contains(t, out.String(), "[redacted]")

		encoded := text[strings.Index(text, "_")+1:]
		key, err := base64.StdEncoding.DecodeString(encoded)
		require.NoError(t, err)
		printed := strings.ToLower(out.String())
		traces := []string{
			encoded[:6], string(key[:4]), hex.EncodeToString(key[:4]),
			fmt.Sprintf("%d %d %d", key[0], key[1], key[2]), fmt.Sprintf("%#x, %#x", key[0], key[1]),
		}
		for _, trace := range traces {
			require.NotContains(t, printed, strings.ToLower(trace))
		}
	}
}

func TestSignAllocatesLittle(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts what others allocate too
	hm := secret(t, knownHMAC)
	body := make([]byte, 1024)
	at := time.Unix(knownUnix, 0)
	allocations := testing.AllocsPerRun(100, func() { _ = signature.Sign(knownID, at, body, hm) })
	require.LessOrEqual(t, allocations, 10.0)
}

func BenchmarkSign(b *testing.B) {
	body := make([]byte, 1024)
	at := time.Unix(knownUnix, 0)
	for _, row := range []struct {
		name    string
		secrets []signature.Secret
	}{
		{"hmac", []signature.Secret{secret(b, knownHMAC)}},
		{"rotating", []signature.Secret{secret(b, knownHMAC), secret(b, knownHMAC)}},
		{"ed25519", []signature.Secret{secret(b, knownPrivate)}},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				_ = signature.Sign(knownID, at, body, row.secrets...)
			}
		})
	}
}

func FuzzVerify(f *testing.F) {
	f.Add(knownID, strconv.Itoa(knownUnix), answerHMAC+" "+answerEd, []byte(knownBody))
	f.Add("", "-1", "v1, v1a,,, x", []byte(nil))
	hm, ed := secret(f, knownHMAC), secret(f, knownPrivate)
	f.Fuzz(func(t *testing.T, id, timestamp, header string, body []byte) {
		message := signature.Message{ID: id, Timestamp: timestamp, Signature: header, Body: body}
		err := signature.Verify(message, time.Unix(knownUnix, 0), -1, hm, ed)
		if err != nil {
			return
		}
		unix, err := strconv.ParseInt(timestamp, 10, 64)
		require.NoError(t, err)
		ours := strings.Fields(signature.Sign(id, time.Unix(unix, 0), body, hm, ed))
		require.True(t, strings.Contains(header, ours[0]) || strings.Contains(header, ours[1]), "accepted a signature that is not ours")
	})
}

func FuzzParseSecret(f *testing.F) {
	f.Add(knownHMAC)
	f.Add(knownPrivate)
	f.Add("whsec_")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := signature.ParseSecret(text)
		if err != nil {
			require.ErrorIs(t, err, signature.ErrMalformedKey)
			return
		}
		require.Equal(t, text, parsed.Reveal())
	})
}
