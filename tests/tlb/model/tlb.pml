/* The paged shadow's translations, in all interleavings: one purger, one populator, and a reader with a TLB of its
 * own (readers write nothing that others read, so one stands for all).
 *
 * Pages 0 and 1, frames 0 and 1. A frame's bytes are the number of the page they describe. The purger takes a page's
 * frame away (clear, flush, free), the populator gives a free frame to a page that has none. A reader looks a page up
 * and uses the bytes it found: they must describe that page, unless it found no frame.
 *
 * Every statement is one step of its process, so that all others may run between any two, in particular between
 * translating and reading. Defined away, one at a time, the model must find the bug:
 *   FREE_FIRST        the frame is free before the flush
 *   READ_ONCE         the generation is not read again behind the bytes
 * and without a bug to find, though readers look only once, the same model with
 *   UNINTERRUPTED     no preemption from the first look at the generation to the use of the bytes
 */

#define NONE 2
#define ROUNDS 3    /* of purger and populator */
#define READS 2

byte pte[2];        /* page -> frame */
byte content[2];    /* frame -> page that its bytes describe */
bool is_free[2];    /* frame */
byte generation;    /* never wraps: 2 * ROUNDS steps at most */

proctype purger() {
  byte round, page, frame;
  for (round : 1 .. ROUNDS) {
    if
    :: page = 0
    :: page = 1
    fi;
    frame = pte[page];
    if
    :: frame == NONE -> skip
    :: else ->
       pte[page] = NONE;                /* clear */
#ifdef FREE_FIRST
       is_free[frame] = true;
       generation++;
#else
       generation++;                    /* flush */
       is_free[frame] = true            /* free */
#endif
    fi
  }
}

proctype populator() {
  byte round, page, frame;
  for (round : 1 .. ROUNDS) {
    frame = NONE;
    if
    :: page = 0
    :: page = 1
    fi;
    if
    :: atomic { is_free[0] -> is_free[0] = false }; frame = 0
    :: atomic { is_free[1] -> is_free[1] = false }; frame = 1
    :: skip
    fi;
    if
    :: frame == NONE -> skip
    :: frame != NONE && pte[page] != NONE -> is_free[frame] = true
    :: else ->
       content[frame] = page;           /* fill before publishing */
       pte[page] = frame
    fi
  }
}

proctype reader() {
  byte tlb_frame[2];
  byte tlb_generation[2];
  byte round, page, g, bytes;
  tlb_generation[0] = 255;
  tlb_generation[1] = 255;
  for (round : 1 .. READS) {
    if
    :: page = 0
    :: page = 1
    fi;
again:
#ifdef UNINTERRUPTED
    atomic {
#endif
    g = generation;
    if
    :: tlb_generation[page] == g -> skip
    :: else -> tlb_frame[page] = pte[page]; tlb_generation[page] = g
    fi;
    if
    :: tlb_frame[page] == NONE -> bytes = NONE
    :: else -> bytes = content[tlb_frame[page]]
    fi;
#ifndef READ_ONCE
    if
    :: generation != g -> goto again
    :: else -> skip
    fi;
#endif
    assert(bytes == NONE || bytes == page)
#ifdef UNINTERRUPTED
    }
#endif
  }
}

init {
  atomic {
    pte[0] = 0; content[0] = 0;
    pte[1] = NONE;
    is_free[1] = true;
    run purger();
    run populator();
    run reader()
  }
}
