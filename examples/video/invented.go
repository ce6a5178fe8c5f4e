package main

import (
	"math/rand/v2"

	"github.com/millrace/millrace/examples/video/index"
)

// What invented credits consist of.
var (
	firstNames = []string{"Zoe", "Amara", "Bram", "Chiyo", "Dario", "Edda", "Farid", "Gwen", "Håkon", "Ines", "Jovan", "Kaito"}
	lastNames  = []string{"Okafor", "Lindqvist", "O'Hara", "Petrova", "Quispe", "Rademaker", "Sato", "Tamm", "Underhill", "Vass"}
	openings   = []string{"The Silent", "A Distant", "Return to the", "Beneath the", "Letters from the", "The Last"}
	places     = []string{"Sea", "Harbour", "Glass House", "Mountain", "Seaside Hotel", "Orchard", "Lighthouse", "River"}
	keywords   = []string{"storm", "ship", "love", "night", "train", "music", "winter", "news", "science", "comedy"}
)

// inventCredits returns the credits of a video that nobody has made. They depend on the seed alone.
func inventCredits(seed uint64) index.Credits {
	random := rand.New(rand.NewPCG(seed, 1))
	c := index.Credits{Title: pick(random, openings) + " " + pick(random, places)}
	for range 1 + random.IntN(3) {
		c.Actors = append(c.Actors, pick(random, firstNames)+" "+pick(random, lastNames))
	}
	c.Directors = []string{pick(random, firstNames) + " " + pick(random, lastNames)}
	for _, i := range random.Perm(len(keywords))[:1+random.IntN(3)] {
		c.Keywords = append(c.Keywords, keywords[i])
	}
	return c
}

func pick(random *rand.Rand, from []string) string { return from[random.IntN(len(from))] }
