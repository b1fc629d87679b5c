// Runs the program's words in order: loops, the descriptor table, and commands, which go to three queues.
//
// One word a cycle, unless DESCRIBE waits for commands that name its entry; an END that jumps takes two. A
// command of a queue takes a cycle more for every loop around it, and one to enter its queue.
`include "lf_assert.svh"

module lf_sequencer
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
(
  input  logic                   clk_i,
  input  logic                   rst_ni,
  input  logic                   run_i,
  input  logic [31:0]            words_i,        // of the program
  // Words of the program.
  input  program_word_t          word_i,
  output program_step_t          step_o,
  // Queues: LOAD, STORE, EXEC. Accepted when valid and ready.
  output logic [2:0]             push_valid_o,
  input  logic [2:0]             push_ready_i,
  output entry_t                 push_o,
  // Descriptor table.
  output describe_port_t         describe_o,
  output logic [5:0]             match_o,
  input  logic [2:0]             match_i,        // a queue has a command that names the entry match_o
  // How it goes.
  output logic                   halted_o,       // HALT has been run
  output fault_t                 fault_o,        // level
  output queue_e                 fault_queue_o,
  output logic [31:0]            words_run_o
);

  localparam int unsigned RunBits = $bits(run_t);
  localparam int unsigned RunWords = RunBits / WordBits;
  localparam int unsigned OffsetWidth = $clog2(LoopWords + 1);

  typedef struct packed {
    logic [31:0]            first;   // the word after LOOP
    logic [OffsetWidth-1:0] offset;  // the same, from the outermost LOOP on
    logic [15:0]            left;    // turns, this one too
    logic [15:0]            turn;
  } loop_state_t;

  logic [31:0]              place_d, place_q;
  logic [31:0]              left_q;      // words of the program from place_q on
  logic                     moved_q;     // place_q is not the word after the last: left_q is to follow
  loop_state_t [2:0]        loops_d, loops_q;  // the innermost first
  logic [1:0]               depth_d, depth_q;
  logic [31:0]              outermost_d, outermost_q;  // word of its LOOP
  logic [OffsetWidth-1:0]   offset_d, offset_q;        // words from there to place_q
  logic                     halted_d, halted_q;
  logic [31:0]              words_run_q;
  logic [2:0][31:0]         pushed_q;    // commands handed out
  // A command of a queue: its two words are joined, its numbers moved loop by loop, then it is pushed.
  logic                     second_d, second_q;  // its second word is to come
  logic                     moving_d, moving_q;
  logic [1:0]               level_d, level_q;    // loops that are done
  run_t                     run_d, run_q;
  // DESCRIBE.
  logic [2:0]               payload_d, payload_q;  // words of payload still to come
  logic [5:0]               entry_q;
  kind_e                    entry_kind_q;
  logic [(PayloadWords-1)*WordBits-1:0] payload_words_q;
  logic [Descriptors-1:0]   transfers_q;     // entries of that kind
  logic [Descriptors-1:0]   computations_q;

  logic [3:0]               opcode;
  describe_t                describe;
  loop_t                    loop;
  plain_t                   plain;
  logic                     ready;      // a word is there, and it is to be run
  logic                     ran;
  logic [2:0]               queue;      // one bit: the queue of the command
  logic [1:0]               number;     // the same, as a number
  logic                     known;      // the command's descriptor is there, and of the right kind
  logic [2:0]               size;       // words of the command
  logic                     too_long;   // the command does not end within the first LoopWords of its loop
  logic                     too_short;  // it does not end within the program
  logic                     again;      // the innermost loop has another turn
  logic                     takes_entry;
  logic                     write;      // the entry's payload is there
  logic                     jump;
  logic signed [11:0]       row_step;
  logic signed [11:0]       slot_step;
  logic signed [9:0]        from_step;
  logic signed [9:0]        to_step;
  logic signed [7:0]        factor_step;
  logic [15:0]              turn;
  run_t                     stepped;    // the command whose numbers are multiplied
  logic [1:0]               next_level;
  logic [15:0]              row_move_q, slot_move_q;
  logic [9:0]               from_move_q, to_move_q;
  logic [7:0]               factor_move_q;
  error_e                   error;
  logic                     at_queue;   // the error is one of the command's queue
  logic [PayloadBits-1:0]   payload;
  transfer_t                transfer;
  computation_t             computation;
  logic                     spare_set;
  logic                     unused;

  assign opcode   = plain.opcode;
  assign describe = describe_t'(word_i.word);
  assign loop     = loop_t'(word_i.word);
  assign plain    = plain_t'(word_i.word);
  assign ready    = run_i && !halted_q && !moving_q && word_i.valid;

  assign payload     = {word_i.word, payload_words_q};
  assign transfer    = transfer_t'(payload);
  assign computation = computation_t'(payload);
  assign unused      = ^{transfer, computation, describe, plain, loop, stepped};
  assign spare_set = entry_kind_q == KindTransfer ? transfer.reserved != '0 : computation.reserved != '0;

  // Words of the command.
  always_comb begin
    unique case (opcode_e'(opcode))
      OpDescribe:              size = 3'(1 + PayloadWords);
      OpLoad, OpStore, OpExec: size = 3'(RunWords);
      default:                 size = 3'd1;
    endcase
  end

  assign too_long  = depth_q != '0 && offset_q > OffsetWidth'(LoopWords) - OffsetWidth'(size);
  assign too_short = left_q < 32'(size);
  assign again     = loops_q[0].left != 16'd1;

  always_comb begin
    unique case (opcode_e'(run_q.opcode))
      OpLoad:  {queue, number} = {3'b001, 2'd0};
      OpStore: {queue, number} = {3'b010, 2'd1};
      OpExec:  {queue, number} = {3'b100, 2'd2};
      default: {queue, number} = {3'b000, 2'd0};
    endcase
  end

  assign known = queue[2] ? computations_q[run_q.descriptor] : transfers_q[run_q.descriptor];

  // What is wrong with the word.
  always_comb begin
    error    = ErrNone;
    at_queue = 1'b0;
    if (payload_q != '0) begin
      if (payload_q == 3'd1 && spare_set) error = ErrReserved;
      else if (payload_q == 3'd1 && payload[1:0] != entry_kind_q) error = ErrField;
    end else if (second_q) begin
      if (!known) begin
        error    = ErrDescriptor;
        at_queue = 1'b1;
      end
    end else begin
      unique case (opcode_e'(opcode))
        OpDescribe: begin
          if (describe.reserved != '0) error = ErrReserved;
          else if (describe.kind != KindTransfer && describe.kind != KindComputation) error = ErrField;
          else if (too_short) error = ErrProgram;
          else if (too_long) error = ErrLoop;
        end
        OpLoad, OpStore, OpExec: begin
          if (too_short) error = ErrProgram;
          else if (too_long) error = ErrLoop;
        end
        OpLoop: begin
          if (loop.reserved != '0) error = ErrReserved;
          else if (too_long || loop.count == '0 || depth_q == 2'(LoopDepth)) error = ErrLoop;
        end
        OpEnd: begin
          if (plain.reserved != '0) error = ErrReserved;
          else if (too_long || depth_q == '0) error = ErrLoop;
        end
        OpHalt: begin
          if (plain.reserved != '0) error = ErrReserved;
          else if (depth_q != '0) error = ErrLoop;
        end
        default: error = ErrOpcode;
      endcase
    end
  end

  always_comb begin
    fault_o       = '{valid: 1'b0, code: ErrNone, index: words_run_q};
    fault_queue_o = QueueSequencer;
    if (run_i && !halted_q && !moving_q && !moved_q && left_q == '0) begin
      fault_o.valid = 1'b1;
      fault_o.code  = ErrProgram;
    end else if (ready && error != ErrNone) begin
      fault_o.valid = 1'b1;
      fault_o.code  = error;
      // Of DESCRIBE, the first word counts.
      if (payload_q != '0) fault_o.index = words_run_q - 32'(PayloadWords);
      if (at_queue) begin
        fault_o.index = pushed_q[number];
        fault_queue_o = queue_e'(number + 2'd1);
      end
    end
  end

  // The steps of the loop that is moved by next, the innermost first, times its turn: of the command that
  // comes, or of the one at work.
  always_comb begin
    stepped    = moving_q ? run_q : {word_i.word, run_q[WordBits-1:0]};
    next_level = moving_q ? level_q + 2'd1 : 2'd0;
    unique case (next_level)
      2'd0: {row_step, slot_step, from_step, to_step, factor_step} = {
        stepped.row_step0, stepped.slot_step0, stepped.from_block_step0, stepped.to_block_step0,
        stepped.factor_step0};
      2'd1: {row_step, slot_step, from_step, to_step, factor_step} = {
        stepped.row_step1, stepped.slot_step1, stepped.from_block_step1, stepped.to_block_step1,
        stepped.factor_step1};
      default: {row_step, slot_step, from_step, to_step, factor_step} = {
        stepped.row_step2, stepped.slot_step2, stepped.from_block_step2, stepped.to_block_step2,
        stepped.factor_step2};
    endcase
    turn = next_level == 2'd0 ? loops_q[0].turn : next_level == 2'd1 ? loops_q[1].turn : loops_q[2].turn;
  end

  always_ff @(posedge clk_i) begin
    if (second_q || moving_q) begin
      row_move_q    <= 16'(row_step) * turn;
      slot_move_q   <= 16'(slot_step) * turn;
      from_move_q   <= 10'(from_step) * turn[9:0];
      to_move_q     <= 10'(to_step) * turn[9:0];
      factor_move_q <= 8'(factor_step) * turn[7:0];
    end
  end

  // What the word does. Numbers move modulo their width.
  always_comb begin
    place_d      = place_q;
    loops_d      = loops_q;
    depth_d      = depth_q;
    outermost_d  = outermost_q;
    offset_d     = offset_q;
    halted_d     = halted_q;
    payload_d    = payload_q;
    push_valid_o = '0;
    write        = 1'b0;
    takes_entry  = 1'b0;
    ran          = 1'b0;
    second_d     = second_q;
    moving_d     = moving_q;
    level_d      = level_q;
    run_d        = run_q;
    if (moving_q && run_i) begin
      if (level_q != depth_q) begin
        level_d          = level_q + 2'd1;
        run_d.row        = run_q.row + row_move_q;
        run_d.slot       = run_q.slot + slot_move_q;
        run_d.from_block = run_q.from_block + from_move_q;
        run_d.to_block   = run_q.to_block + to_move_q;
        run_d.factor     = run_q.factor + factor_move_q;
      end else begin
        push_valid_o = queue;
        if ((queue & push_ready_i) != '0) moving_d = 1'b0;
      end
    end
    if (ready && error == ErrNone) begin
      ran      = 1'b1;
      offset_d = offset_q + OffsetWidth'(1);
      place_d  = place_q + 32'd1;
      if (payload_q != '0) begin
        payload_d = payload_q - 3'd1;
        write     = payload_q == 3'd1;
      end else if (second_q) begin
        run_d[RunBits-1:WordBits] = word_i.word;
        second_d                  = 1'b0;
        moving_d                  = 1'b1;
        level_d                   = '0;
      end else begin
        unique case (opcode_e'(opcode))
          OpDescribe: begin
            if (match_i != '0) begin
              ran = 1'b0;
            end else begin
              takes_entry = 1'b1;
              payload_d   = 3'(PayloadWords);
            end
          end
          OpLoad, OpStore, OpExec: begin
            run_d[WordBits-1:0] = word_i.word;
            second_d            = 1'b1;
          end
          OpLoop: begin
            if (depth_q == '0) begin
              outermost_d = place_q;
              offset_d    = OffsetWidth'(1);
            end
            loops_d = {loops_q[1:0],
                       loop_state_t'{first: place_d, offset: offset_d, left: loop.count, turn: 16'd0}};
            depth_d = depth_q + 2'd1;
          end
          OpEnd: begin
            if (again) begin
              place_d         = loops_q[0].first;
              offset_d        = loops_q[0].offset;
              loops_d[0].left = loops_q[0].left - 16'd1;
              loops_d[0].turn = loops_q[0].turn + 16'd1;
            end else begin
              loops_d = {loop_state_t'('0), loops_q[2:1]};
              depth_d = depth_q - 2'd1;
            end
          end
          OpHalt:  halted_d = 1'b1;
          default: ;
        endcase
      end
    end
  end

  assign jump        = payload_q == '0 && !second_q && opcode == OpEnd && again;
  assign step_o      = '{take: ran, jump: jump, target: loops_q[0].first,
                         keep: depth_q != '0 ? outermost_q : place_q};
  assign describe_o  = '{valid: write, descriptor: entry_q, payload: payload};
  assign match_o     = describe.descriptor;
  assign halted_o    = halted_q;
  assign words_run_o = words_run_q;

  // A distance of n commands: all but the last n that were handed out before must be finished.
  always_comb begin
    push_o = '0;
    if (push_valid_o != '0) push_o = '{
      descriptor: run_q.descriptor,
      row:        run_q.row,
      count:      run_q.count,
      slot:       run_q.slot,
      from_block: run_q.from_block,
      to_block:   run_q.to_block,
      factor:     run_q.factor,
      wait_valid: {run_q.wait_exec != 6'(NoWait), run_q.wait_store != 6'(NoWait),
                   run_q.wait_load != 6'(NoWait)},
      target:     {pushed_q[2][15:0] - 16'(run_q.wait_exec), pushed_q[1][15:0] - 16'(run_q.wait_store),
                   pushed_q[0][15:0] - 16'(run_q.wait_load)}
    };
  end

  // After a jump, no word is there in the next cycle.
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      left_q  <= '0;
      moved_q <= 1'b1;
    end else begin
      moved_q <= ran && jump;
      if (moved_q) left_q <= words_i - place_q;
      else if (ran) left_q <= left_q - 32'd1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      place_q         <= '0;
      loops_q         <= '0;
      depth_q         <= '0;
      outermost_q     <= '0;
      offset_q        <= '0;
      halted_q        <= 1'b0;
      payload_q       <= '0;
      second_q        <= 1'b0;
      moving_q        <= 1'b0;
      level_q         <= '0;
      run_q           <= '0;
      entry_q         <= '0;
      entry_kind_q    <= KindTransfer;
      payload_words_q <= '0;
      transfers_q     <= '0;
      computations_q  <= '0;
      words_run_q     <= '0;
      pushed_q        <= '0;
    end else if (ran || moving_q) begin
      place_q     <= place_d;
      second_q    <= second_d;
      moving_q    <= moving_d;
      level_q     <= level_d;
      run_q       <= run_d;
      loops_q     <= loops_d;
      depth_q     <= depth_d;
      outermost_q <= outermost_d;
      offset_q    <= offset_d;
      halted_q    <= halted_d;
      payload_q   <= payload_d;
      if (ran) words_run_q <= words_run_q + 32'd1;
      if (takes_entry) begin
        entry_q      <= describe.descriptor;
        entry_kind_q <= kind_e'(describe.kind);
      end
      if (ran && payload_q != '0)
        payload_words_q <= {word_i.word, payload_words_q[(PayloadWords-1)*WordBits-1:WordBits]};
      if (write) begin
        transfers_q[entry_q]    <= entry_kind_q == KindTransfer;
        computations_q[entry_q] <= entry_kind_q == KindComputation;
      end
      for (int unsigned k = 0; k < 3; k++) begin
        if (push_valid_o[k] && push_ready_i[k]) pushed_q[k] <= pushed_q[k] + 32'd1;
      end
    end
  end

  `LF_ASSERT(WordInProgram, !word_i.valid || (!moved_q && place_q < words_i),
             "a word comes from behind the end of the program")
  `LF_ASSERT(PushedToOne, $onehot0(push_valid_o), "a command goes to several queues")
  `LF_ASSERT(PushHeld, push_valid_o != '0 && (push_valid_o & push_ready_i) == '0 |=>
             !run_i || (push_valid_o != '0 && $stable(push_o)),
             "a command changes before its queue takes it")
endmodule
