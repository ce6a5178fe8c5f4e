package filequeue

func childIfAsked() {}
