package roles

import (
	"fmt"
	"strconv"

	"github.com/millrace/millrace/codec/zstdcodec"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/gather"
	"github.com/millrace/millrace/kinds"
)

// Names of the queues, in the order in which a batch passes them.
const (
	BatchesQueue = "billing-batches"
	WorkQueue    = "billing-work"
	ResultsQueue = "billing-results"
)

// BeaconsQueue is the control queue in which Workers report that an agent scales.
const BeaconsQueue = "billing-beacons"

// QueueNames returns the names of the queues, in the order in which a batch passes them.
func QueueNames() []string { return []string{BatchesQueue, WorkQueue, ResultsQueue} }

// Batch asks the Initiator to split a batch whose pieces are stored.
type Batch struct {
	Name string `json:"batch"`

	// Done is how many pieces were split before: the Initiator saves it, so that another delivery goes on from there.
	Done int `json:"done,omitempty"`
}

// WorkItem is some records of a batch, for a Worker.
type WorkItem struct {
	Batch   string `json:"batch"`
	Item    int    `json:"item"`    // from 0
	Items   int    `json:"items"`   // of the batch
	File    string `json:"file"`    // where the records are from
	Tariffs string `json:"tariffs"` // that apply: see tariffStore
	Records string `json:"records"` // as records.ReadPiece reads them
}

// Result tells the Controller that parts of a batch are stored.
type Result struct {
	Batch  string `json:"batch"`
	Items  int    `json:"items"`  // of the batch
	Stored []int  `json:"stored"` // the items whose parts are stored
}

// The kinds tie names and codecs to the types, for those who send and those who handle.
var (
	batchKind  = kinds.Kind[Batch]{Name: "batch"}
	itemKind   = kinds.Kind[WorkItem]{Name: "item", Codec: zstdcodec.New[WorkItem](nil, &zstdcodec.Options{MaxBody: maxItem})}
	resultKind = kinds.Kind[Result]{Name: "result"}
)

// maxItem bounds an item when it is unpacked. JSON makes two characters of a quotation mark, and six of some others.
const maxItem = 6*shipping.MaxPieceBytes + 64<<10

func (b *Batch) check() error {
	if b.Done < 0 {
		return fmt.Errorf("batch %s cannot have %d pieces that were split", b.Name, b.Done)
	}
	return shipping.CheckBatch(b.Name)
}

func (i *WorkItem) check() error {
	if i.Items < 1 || i.Items > gather.MaxParts || i.Item < 0 || i.Item >= i.Items {
		return fmt.Errorf("batch %s has no item %d of %d", i.Batch, i.Item, i.Items)
	}
	return shipping.CheckBatch(i.Batch)
}

func (r *Result) check() error {
	if r.Items < 1 || r.Items > gather.MaxParts {
		return fmt.Errorf("batch %s cannot have %d items", r.Batch, r.Items)
	}
	return shipping.CheckBatch(r.Batch)
}

// jobID names an item in logs and in the poison queue.
func jobID(batch string, item int) string { return batch + "/" + strconv.Itoa(item) }
