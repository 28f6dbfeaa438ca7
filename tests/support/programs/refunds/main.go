// A team's own worker in Go: it takes calls of RefundOrder, and writes the key of each into a file.
//
// Its arguments are the server's address, the namespace and the task queue. EFFECTS names the file. With HANGS it only
// sends heartbeats.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
)

type Order struct {
	Order string `json:"order"`
}

type Call struct {
	IdempotencyKey string `json:"idempotency_key"`
}

type Refund struct {
	Refunded string `json:"refunded"`
	By       string `json:"by"`
}

func RefundOrder(ctx context.Context, order Order, call Call) (Refund, error) {
	file, err := os.OpenFile(os.Getenv("EFFECTS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return Refund{}, err
	}
	defer file.Close()
	if _, err := file.WriteString(call.IdempotencyKey + "\n"); err != nil {
		return Refund{}, err
	}
	for os.Getenv("HANGS") != "" {
		activity.RecordHeartbeat(ctx)
		time.Sleep(50 * time.Millisecond)
	}
	return Refund{Refunded: order.Order, By: "go"}, nil
}

func main() {
	connected, err := client.Dial(client.Options{HostPort: os.Args[1], Namespace: os.Args[2]})
	if err != nil {
		log.Fatal(err)
	}
	ours := worker.New(connected, os.Args[3], worker.Options{})
	ours.RegisterActivity(RefundOrder)
	if err := ours.Run(worker.InterruptCh()); err != nil {
		log.Fatal(err)
	}
}
