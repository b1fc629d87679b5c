// Runs scripts of 32-bit words (stdin) on lf_exec and its buffer, and prints (stdout) what the buffer then
// holds. Words of a script:
//   1                            reset
//   2 word count bytes...        write the buffer
//   3 space word count bytes...  write factors or tables
//   4 wait row count bytes...    a command (descriptor of DESCRIPTOR bytes); it is given once at most `wait`
//                                commands before it are unfinished
//   5                            wait until all commands are done, or one has failed; prints error, commands
//                                done, cycles of each, sums of events
//   6 word count                 print words of the buffer
//   7 reads writes holds seed scratch  the other requesters ask in so many of 256 cycles, and each request of
//                                      lf_exec is held off in so many; the others' writes go to the last
//                                      `scratch` words
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "Vlf_exec_bench.h"
#include "verilated.h"

namespace {
constexpr uint64_t Patience = 400000;  // cycles in which a command must be done

Vlf_exec_bench* dut;
uint32_t reads, writes, holds, scratch, state = 1;
uint64_t cycles, events[5];
std::vector<uint64_t> given, finished;

uint32_t number() {
  uint32_t found;
  if (fread(&found, 4, 1, stdin) != 1) exit(0);
  return found;
}

void print(uint32_t value) { fwrite(&value, 4, 1, stdout); }

uint32_t chance() {
  state ^= state << 13, state ^= state >> 17, state ^= state << 5;
  return state >> 8;
}

// One clock cycle; the competing requesters choose anew in each.
void tick(bool compete = true) {
  if (compete && reads) {
    dut->rd_valid_i = (chance() & 255) < reads;
    dut->rd_word_i = chance() % BUFFER_WORDS;
  }
  if (compete && writes) {
    dut->wr_valid_i = (chance() & 255) < writes;
    dut->wr_word_i = BUFFER_WORDS - 1 - chance() % scratch;
  }
  if (compete && holds) {
    dut->hold_i = 0;
    for (int k = 0; k < 4; k++) dut->hold_i |= ((chance() & 255) < holds) << k;
  }
  dut->clk_i = 0;
  dut->eval();
  if (dut->done_o) finished.push_back(cycles);
  for (int k = 0; k < 5; k++) events[k] += dut->events_o >> k & 1;
  dut->clk_i = 1;
  dut->eval();
  cycles++;
}

void quiet() { dut->rd_valid_i = dut->wr_valid_i = dut->hold_i = 0; }
}  // namespace

int main(int argc, char** argv) {
  Verilated::commandArgs(argc, argv);
  dut = new Vlf_exec_bench;
  for (;;) {
    switch (number()) {
      case 1:
        dut->rst_ni = 0;
        dut->valid_i = dut->aux_valid_i = 0;
        quiet();
        tick(false);
        dut->rst_ni = 1;
        given.clear(), finished.clear();
        memset(events, 0, sizeof events);
        break;
      case 2: {
        uint32_t word = number(), count = number();
        for (dut->wr_valid_i = 1; count--; word++) {
          dut->wr_word_i = word;
          if (fread(&dut->wr_data_i, LANES, 1, stdin) != 1) return 1;
          tick(false);
        }
        quiet();
        break;
      }
      case 3: {
        dut->aux_space_i = number();
        uint32_t word = number(), count = number();
        for (dut->aux_valid_i = 1; count--; word++) {
          dut->aux_word_i = word;
          if (fread(&dut->aux_data_i, LANES, 1, stdin) != 1) return 1;
          tick(false);
        }
        dut->aux_valid_i = 0;
        break;
      }
      case 4: {
        uint32_t wait = number(), row = number(), count = number();
        unsigned char descriptor[DESCRIPTOR];
        if (fread(descriptor, DESCRIPTOR, 1, stdin) != 1) return 1;
        for (uint64_t end = cycles + Patience;
             given.size() > finished.size() + wait && !dut->error_o && cycles < end;)
          tick();
        memcpy(&dut->descriptor_i, descriptor, DESCRIPTOR);
        dut->row_i = row, dut->count_i = count, dut->valid_i = 1;
        for (uint64_t end = cycles + Patience;;) {
          dut->clk_i = 0;
          dut->eval();
          bool taken = dut->ready_o;
          if (taken) given.push_back(cycles);
          if (dut->error_o || cycles >= end) break;
          tick();
          if (taken) break;
        }
        dut->valid_i = 0;
        break;
      }
      case 5: {
        for (uint64_t end = cycles + Patience;
             given.size() > finished.size() && !dut->error_o && cycles < end;)
          tick();
        if (!dut->error_o && (given.size() > finished.size() || !dut->idle_o)) tick();
        print(dut->error_o ? dut->error_code_o : given.size() > finished.size() || !dut->idle_o ? 255 : 0);
        print(finished.size());
        for (size_t k = 0; k < finished.size(); k++) print(finished[k] - given[k] + 1);
        for (uint64_t event : events) print(event);
        quiet();
        tick(false);
        break;
      }
      case 6: {
        uint32_t word = number(), count = number();
        for (dut->rd_valid_i = 1; count--; word++) {
          dut->rd_word_i = word;
          tick(false);
          fwrite(&dut->rd_data_o, LANES, 1, stdout);
        }
        quiet();
        break;
      }
      case 7:
        reads = number(), writes = number(), holds = number(), state = number() | 1, scratch = number();
        break;
      default:
        return 1;
    }
  }
}
