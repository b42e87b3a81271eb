package egress

import (
	"bufio"
	"io"
	"net"
	"testing"
)

// One kept connection per goroutine, a receiver that answers with a constant: what
// remains is the client's own cost, and the kernel's.
func BenchmarkSend(b *testing.B) {
	url := "http://" + rawServer(b, func(conn *net.TCPConn, _ int) {
		br := bufio.NewReader(conn)
		for readRequest(br) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nDate: Fri, 07 Nov 2014 23:37:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
		}
	}) + "/hook"
	c := setup(b, Config{})
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
