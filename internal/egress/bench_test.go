package egress

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/everpost/everpost/internal/receivertest"
)

// BenchmarkSend measures the cost of the client and the kernel: one kept connection per
// goroutine and a receiver with a constant response.
func BenchmarkSend(b *testing.B) {
	for _, way := range []string{"http", "TLS 1.2", "TLS 1.3"} {
		b.Run(way, func(b *testing.B) { benchmarkSend(b, ways[way]) })
	}
}

func benchmarkSend(b *testing.B, version uint16) {
	b.Helper()
	ca, scheme := newAuthority(b), "http://"
	config := ca.config(b, "127.0.0.1", time.Now().Add(time.Hour))
	if version != 0 {
		scheme, config.MaxVersion = "https://", version
	}
	url := scheme + rawServer(b, func(conn *net.TCPConn, _ int) {
		var rw io.ReadWriter = conn
		if version != 0 {
			rw = tls.Server(conn, config)
		}
		br := bufio.NewReader(rw)
		for readRequest(br) {
			_, _ = io.WriteString(rw, "HTTP/1.1 200 OK\r\nDate: Fri, 07 Nov 2014 23:37:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
		}
	}) + "/hook"
	c := setup(b, Config{RootCAs: ca.pool})
	request := Request{
		EndpointID: "ep_1",
		URL:        url,
		Body:       make([]byte, 1<<10),
		MaxIdle:    64,
		Header: [][2]string{
			{"webhook-id", "evt_2KWPBgLlAfxdpx2AI54pPJ85f4W"}, {"webhook-timestamp", "1614265330"},
			{"webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
			{"everpost-attempt", "1"}, {"everpost-event-type", "order.paid"}, {"everpost-delivery-id", "dlv_2KWPBgLlAfxdpx2AI54pPJ85f4W"},
		},
	}
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if r := c.Send(b.Context(), request); r.Answer.Status != 200 {
				b.Error(r.Err)
			}
		}
	})
}

// BenchmarkNoPendingData measures the check for unread data, which runs before a connection
// is kept and before it is used again.
func BenchmarkNoPendingData(b *testing.B) {
	for _, way := range []string{"http", "TLS 1.2", "TLS 1.3"} {
		b.Run(way, func(b *testing.B) {
			ca, scheme := newAuthority(b), "http://"
			options := receivertest.Options{}
			if ways[way] != 0 {
				scheme, options.TLS = "https://", ca.config(b, "127.0.0.1", time.Now().Add(time.Hour))
				options.TLS.MaxVersion = ways[way]
			}
			receiver := receivertest.NewWith(b, options)
			c := setup(b, Config{RootCAs: ca.pool})
			c.Send(b.Context(), Request{EndpointID: "ep_1", URL: scheme + receiver.Addr().String()})
			kept := connOf(c.pool.oldest.Front())
			b.ReportAllocs()
			for b.Loop() {
				if !kept.noPendingData(true) {
					b.Fatal("not noPendingData")
				}
			}
		})
	}
}
