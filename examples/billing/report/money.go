package report

import "github.com/millrace/millrace/meter"

// Requests are what a run asked of the storage.
type Requests struct {
	// Queue and Blobs are how many requests to queues and to blobs were billed.
	Queue, Blobs int64

	// Records is how many records the requests were for. Defaults to all of the books.
	Records int64

	// Price is the price of a request to a queue, in dollars. Defaults to $0.01 for 10,000.
	Price meter.Price

	// BlobPrice is the price of a request to a blob, in dollars. Defaults to Price.
	BlobPrice meter.Price
}

// NaiveRequests is how many requests a record takes in the naive design: it is a message, and its
// result is another, and each of them is put, received and deleted alone.
const NaiveRequests = 6

// Money is what the requests of a run cost, in dollars, and what those of the naive design would.
type Money struct {
	Records, Queue, Blobs, Naive          int64 // records and requests
	QueueCost, BlobsCost, Cost, NaiveCost float64
}

// money prices requests. All requests of a kind cost as much as an enqueue.
func (r Requests) money(records int64) *Money {
	if r.Records == 0 {
		r.Records = records
	}
	if r.Price.Class1 == 0 {
		r.Price = meter.Price{Class1: 0.01}
	}
	if r.BlobPrice.Class1 == 0 {
		r.BlobPrice = r.Price
	}
	queue, blobs := r.Price.Of(meter.Enqueue), r.BlobPrice.Of(meter.Enqueue)
	m := &Money{
		Records: r.Records, Queue: r.Queue, Blobs: r.Blobs, Naive: NaiveRequests * r.Records,
		QueueCost: float64(r.Queue) * queue, BlobsCost: float64(r.Blobs) * blobs, NaiveCost: NaiveRequests * float64(r.Records) * queue,
	}
	m.Cost = m.QueueCost + m.BlobsCost
	return m
}

// Times returns how many times the naive design costs as much, or 0 if the run cost nothing.
func (m *Money) Times() float64 {
	if m.Cost == 0 {
		return 0
	}
	return m.NaiveCost / m.Cost
}
