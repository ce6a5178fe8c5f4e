package agent

import (
	"time"

	"github.com/millrace/millrace/meter"
	"github.com/millrace/millrace/scaling"
)

// Summary is what the decisions about one pool came to, since Run was called. In a dry run it is what they would have come to.
type Summary struct {
	// From and To are the times of the first and of the newest measurement.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`

	// Decisions is how many were made, Ups and Downs how many of them changed the number of instances, and Failed how many could not be carried out.
	Decisions int `json:"decisions"`
	Ups       int `json:"ups"`
	Downs     int `json:"downs"`
	Failed    int `json:"failed"`

	// Least and Most are the bounds of the number of instances.
	Least int `json:"least"`
	Most  int `json:"most"`

	// InstanceHours are those of the instances that were there, or would have been; of stopping ones nothing is known.
	InstanceHours float64 `json:"instance_hours"`

	// Requests are those that measuring sent.
	Requests meter.Counts `json:"requests"`

	// InstanceCost and RequestCost are what these cost, unknown without prices.
	InstanceCost scaling.Optional[float64] `json:"instance_cost"`
	RequestCost  scaling.Optional[float64] `json:"request_cost"`

	// LateMinutes is for how long the oldest message had waited longer than the policy's Target, and UnseenMinutes for how long that
	// could not be told. In a dry run it is what the real instances made of it.
	LateMinutes   float64 `json:"late_minutes"`
	UnseenMinutes float64 `json:"unseen_minutes"`
}

// Changes returns how many decisions changed the number of instances.
func (s Summary) Changes() int { return s.Ups + s.Downs }
