// Takes finished sums, one column a cycle, through bias, factor, zero point, bounds and table, and writes
// them; or writes sums as they are, to be held.
//
// A request is a block of output channels of a command; blocks come in order. There is room for two: while
// one is drained, the bias, factors and table of the next are fetched. Nothing stands still between the sums
// and the words: a sum is read once there is room for its word at the end.
`include "lf_assert.svh"

module lf_drain
  import lf_isa_pkg::*;
  import lf_port_pkg::*;
  import lf_setup_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384,
  localparam int unsigned WordsOfAllTables = Tables * TableBytes / Lanes
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,
  // A request, with its command.
  input  logic                           request_valid_i,
  output logic                           request_ready_o,
  input  block_t                         request_i,
  input  logic [2:0]                     number_i,  // of its command, modulo 8
  input  work_t                          work_i,
  output logic                           busy_o,
  output logic                           done_o,  // the last word of a command is written
  // Banks of the accumulators.
  input  logic                           final_start_i,  // first column of a block's last pass, to this bank
  input  logic                           final_bank_i,
  input  logic [2:0]                     filled_i,  // finished sums, in place in the next cycle: 0 to 4
  input  logic                           filled_bank_i,
  output logic [1:0]                     bank_busy_o,  // from then until all columns are read
  output logic                           sum_read_o,
  output logic                           sum_bank_o,
  output logic [8:0]                     sum_column_o,
  input  logic                           sum_grant_i,
  input  logic [Lanes*32-1:0]            sum_data_i,
  // Bias.
  output logic                           rd_valid_o,
  output logic [19:0]                    rd_word_o,
  input  logic                           rd_grant_i,
  input  logic [Lanes*8-1:0]             rd_data_i,
  // Results.
  output logic                           wr_valid_o,
  output logic [19:0]                    wr_word_o,
  output logic [Window-1:0]              wr_mask_o,
  output logic [Window-1:0][Lanes*8-1:0] wr_data_o,
  output logic [Lanes-1:0]               wr_lanes_o,  // bytes of each word that are meant
  input  logic                           wr_grant_i,
  output logic [1:0]                     fault_o,  // level: bias, result behind the end of the buffer
  output logic [1:0][2:0]                fault_number_o,
  // Factors and tables, written.
  input  aux_write_t                     aux_i,
  input  logic [Lanes*8-1:0]             aux_data_i
);
  localparam int unsigned LanesOfWord = Lanes / 4;  // int32 in a word
  localparam int unsigned Depth = 16;  // words on their way; 9 are when each is taken at once

  typedef struct {
    logic              hold;  // sums as they are
    logic [Lanes-1:0]  lanes;  // that are written
    logic              last;  // of the command
    logic [2:0]        number;
    logic              bank;
    logic [9:0]        columns;
    logic [11:0]       width;
    logic [4:0]        step;  // words from one column to the next
    logic [35:0]       base;  // words
    ring_t             ring;
    logic              by_channel;
    logic [7:0]        factors;  // row
    logic [30:0]       multiplier;
    logic [5:0]        shift;
    logic              mean;
    bounds_t           bounds;
    logic              has_table;
    logic [5:0]        table_id;
    logic              has_bias;
    logic signed [31:0] bias_value;
    logic [20:0]       bias;  // word, the first
    logic [2:0]        bias_words;
  } request_t;
  request_t   request_q [2], request_new;
  logic [1:0] valid_q, prepared_q;
  logic       put_q, get_q;  // where the next request goes; where the next to drain is

  computation_t d;
  assign d = work_i.d;

  // Lanes that a finished block is written to; sums that are held take all.
  logic [Lanes-1:0] written, steps;  // steps: every o_lane_step-th lane
  logic [6:0]       lane_end;
  logic [7:0]       chosen_end;  // behind the last lane of COPY
  logic             chosen;

  always_comb begin
    written = '1;
    steps = Lanes'(1);
    chosen = request_valid_i && d.operation == 3'(DoCopy) && d.lanes != '0;
    lane_end = request_i.last ? d.out_tail : 7'(Lanes);
    chosen_end = 8'(d.o_lane) + (d.o_lane_step == '0 ? 8'd1 : 8'(d.lanes) * 8'(d.o_lane_step));
    if (chosen) begin
      for (int unsigned s = 1; s < Lanes; s++) begin
        for (int unsigned l = s; l < Lanes; l += s) if (32'(d.o_lane_step) == s) steps[l] = 1'b1;
      end
    end
    steps = steps << d.o_lane;
    if (request_valid_i && d.last) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        written[l] = 7'(l) < lane_end && (d.operation != 3'(DoConv) || 7'(l) >= 7'(d.o_lane))
            && (!chosen || (steps[l] && 8'(l) < chosen_end));
      end
    end
  end

  logic              scales;
  logic signed [8:0] zero, low;
  logic [35:0]       block_q, base;  // words: where the block before began, where this one does

  always_comb begin
    request_new = '{default: '0};
    scales = d.last && d.scale != 2'(ScaleNone);
    zero = scales ? d.o_zero : '0;
    low = d.low < d.high ? d.low : d.high;
    base = d.last ? 36'(d.o_base) : 36'(d.b_base);
    if (request_i.index != '0) base = block_q + (d.last ? 36'(d.o_block_words) : 36'(d.b_block_words));
    if (request_valid_i) begin
      request_new.hold = !d.last;
      request_new.lanes = written;
      request_new.last = request_i.last;
      request_new.number = number_i;
      request_new.bank = request_i.bank;
      request_new.columns = work_i.columns;
      request_new.width = d.o_width;
      request_new.base = base;
      request_new.step = d.last ? 5'(d.o_step) : 5'(Window);
      request_new.ring = d.last ? work_i.o : work_i.b;
      request_new.by_channel = d.last && d.scale == 2'(ScaleChannel);
      request_new.factors = d.factors + 8'(request_i.index);
      // What is not scaled is multiplied by 1.
      request_new.multiplier = scales ? d.multiplier : 31'd1;
      request_new.shift = scales ? d.shift : '0;
      request_new.mean = scales && d.operation == 3'(DoSum);
      request_new.bounds = '{
        zero: zero[7:0],
        low: low[7:0],
        high: d.high[7:0],
        below: {11'(low) - 11'(zero), 1'b0},
        above: {11'(d.high) - 11'(zero), 1'b1}
      };
      request_new.has_table = d.last && d.has_table;
      request_new.table_id = d.table_id;
      request_new.has_bias = d.last && d.has_bias;
      request_new.bias_value = d.last ? d.bias_value : '0;
      request_new.bias = 21'(d.bias) + 21'({request_i.index, 2'b00});
      // Words that hold the block's n sums of 4 bytes.
      request_new.bias_words = 3'd4;
      if (request_i.last) begin
        for (int unsigned k = 4; k > 0; k--)
          if (32'(d.out_tail) <= k * LanesOfWord) request_new.bias_words = 3'(k);
      end
    end
  end

  // Preparing: bias, factors and table of the request at prepare_q.
  logic                prepare_q, preparing_q;
  logic [2:0]          bias_asked_q, bias_come_q, factor_asked_q;
  logic [20:0]         bias_word_q;
  logic                bias_coming_q, factor_coming_q;
  logic [1:0]          bias_part_q;
  logic [2:0]          factor_part_q;
  logic [Lanes*8-1:0]  factor_data;
  logic [Lanes*40-1:0] factor_row_q;
  logic                table_ready, bias_done, factor_done, prepare_done;
  logic                by_channel, with_bias, bias_asks;
  logic [Lanes-1:0]    bias_write;
  logic signed [31:0]  bias [Lanes];
  logic [30:0]         multiplier [Lanes];
  logic [5:0]          shift [Lanes];

  always_comb begin
    with_bias = request_q[prepare_q].has_bias;
    by_channel = request_q[prepare_q].by_channel;
    bias_done = !with_bias || bias_come_q == request_q[prepare_q].bias_words;
    factor_done = !by_channel || (factor_asked_q == 3'(FactorBytes) && !factor_coming_q);
    prepare_done = preparing_q && bias_done && factor_done &&
                   (table_ready || !request_q[prepare_q].has_table);
    bias_asks = preparing_q && with_bias && bias_asked_q != request_q[prepare_q].bias_words;
    fault_o[0] = bias_asks && bias_word_q >= 21'(BufferWords);
    rd_valid_o = bias_asks && bias_word_q < 21'(BufferWords);
    rd_word_o = bias_word_q[19:0];
    fault_number_o[0] = request_q[prepare_q].number;
    request_ready_o = request_valid_i && !valid_q[put_q] && !preparing_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      prepare_q <= 1'b0;
      preparing_q <= 1'b0;
      block_q <= '0;
      bias_word_q <= '0;
      bias_asked_q <= '0;
      bias_come_q <= '0;
      bias_coming_q <= 1'b0;
      bias_part_q <= '0;
      factor_asked_q <= '0;
      factor_coming_q <= 1'b0;
      factor_part_q <= '0;
    end else begin
      bias_coming_q <= rd_valid_o && rd_grant_i;
      bias_part_q <= bias_asked_q[1:0];
      factor_coming_q <= preparing_q && by_channel && factor_asked_q != 3'(FactorBytes);
      factor_part_q <= factor_asked_q;
      if (rd_valid_o && rd_grant_i) bias_word_q <= bias_word_q + 1'b1;
      if (request_ready_o) begin
        block_q <= base;
        bias_word_q <= request_new.bias;
        prepare_q <= put_q;
        preparing_q <= 1'b1;
        bias_asked_q <= '0;
        bias_come_q <= '0;
        factor_asked_q <= '0;
      end else if (preparing_q) begin
        if (rd_valid_o && rd_grant_i) bias_asked_q <= bias_asked_q + 1'b1;
        if (bias_coming_q) bias_come_q <= bias_come_q + 1'b1;
        if (by_channel && factor_asked_q != 3'(FactorBytes)) factor_asked_q <= factor_asked_q + 1'b1;
        if (prepare_done) preparing_q <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (request_ready_o) request_q[put_q] <= request_new;
    if (factor_coming_q) begin
      for (int unsigned k = 0; k < FactorBytes; k++)
        if (factor_part_q == 3'(k)) factor_row_q[k*Lanes*8 +: Lanes*8] <= factor_data;
    end
  end

  always_comb begin
    for (int unsigned l = 0; l < Lanes; l++) begin
      bias_write[l] = (bias_coming_q && 32'(bias_part_q) == l / LanesOfWord) || (preparing_q && !with_bias);
      bias[l] = with_bias ? rd_data_i[(l % LanesOfWord)*32 +: 32] : request_q[prepare_q].bias_value;
      multiplier[l] = by_channel ? factor_row_q[l*40 +: 31] : request_q[prepare_q].multiplier;
      shift[l] = by_channel ? factor_row_q[l*40 + 32 +: 6] : request_q[prepare_q].shift;
    end
  end

  lf_factors #(
    .Lanes(Lanes)
  ) u_factors (
    .clk_i,
    .write_i     (aux_i.valid && aux_i.space == SpaceFactors),
    .write_word_i(aux_i.word[10:0]),
    .write_data_i(aux_data_i),
    .read_i      (preparing_q && by_channel && factor_asked_q != 3'(FactorBytes)),
    .read_row_i  (request_q[prepare_q].factors),
    .read_part_i (factor_asked_q),
    .read_data_o (factor_data)
  );

  // A word on its way: what comes out with its bytes, and the oldest that waits to be written.
  typedef struct packed {
    logic        last;  // column of the request
    logic        done;  // of the command
    logic        over;  // behind the end of the buffer
    logic [19:0] word;
  } tag_t;
  typedef struct packed {
    logic place;  // of the request
    logic hold;
    tag_t tag;
  } waiting_t;
  waiting_t  head;
  logic   leaves;  // it is written

  // Reading sums, in the order of rows and columns, with the place that each result goes to.
  logic        reading_q, bank_q;
  logic [9:0]  pending_q [2];  // finished sums in place, not read yet
  logic [9:0]  column_q, column_last_q;
  logic [11:0] x_q, x_last_q;
  logic [31:0] offset_q;  // words, of the row in its ring
  logic [35:0] address_q, row_q;  // words: of the column, of its row's first
  logic [31:0] row_step_q;
  logic signed [33:0] wrap_q;  // the same to the row after, where the ring begins anew
  logic signed [33:0] wrapped;
  logic [31:0] next_offset;
  logic [35:0] next_row;
  logic [$clog2(Depth)-1:0] on_way_q;  // sums that are read, whose words are not written: below Depth
  logic        start, read, row_end, column_last;
  request_t    request;

  always_comb begin
    request = request_q[get_q];
    start = valid_q[get_q] && prepared_q[get_q] && !reading_q;
    column_last = column_q == column_last_q;
    row_end = x_q == x_last_q;
    wrapped = signed'({2'b00, offset_q}) + wrap_q;
    next_offset = wrapped < 0 ? offset_q + row_step_q : wrapped[31:0];
    next_row = wrapped < 0 ? row_q + 36'(row_step_q) : row_q + 36'(wrap_q);
  end
  assign sum_read_o = reading_q && on_way_q != '1 && pending_q[bank_q] != '0;
  assign read = sum_read_o && sum_grant_i;
  assign sum_bank_o = bank_q;
  assign sum_column_o = column_q[8:0];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= '0;
      prepared_q <= '0;
      put_q <= 1'b0;
      get_q <= 1'b0;
      reading_q <= 1'b0;
      bank_q <= 1'b0;
      pending_q <= '{default: '0};
      column_q <= '0;
      column_last_q <= '0;
      x_q <= '0;
      x_last_q <= '0;
      offset_q <= '0;
      address_q <= '0;
      row_q <= '0;
      row_step_q <= '0;
      wrap_q <= '0;
      on_way_q <= '0;
      bank_busy_o <= '0;
    end else begin
      if (request_ready_o) begin
        valid_q[put_q] <= 1'b1;
        prepared_q[put_q] <= 1'b0;
        put_q <= !put_q;
      end
      if (prepare_done) prepared_q[prepare_q] <= 1'b1;
      if (leaves && head.tag.last) valid_q[head.place] <= 1'b0;
      on_way_q <= on_way_q + ($clog2(Depth))'(read) - ($clog2(Depth))'(leaves);

      for (int unsigned h = 0; h < 2; h++) begin
        pending_q[h] <= pending_q[h] + (filled_bank_i == 1'(h) ? 10'(filled_i) : 10'd0) -
                        10'(read && bank_q == 1'(h));
      end
      if (start) begin
        prepared_q[get_q] <= 1'b0;
        reading_q <= 1'b1;
        bank_q <= request.bank;
        column_q <= '0;
        column_last_q <= request.columns - 10'd1;
        x_q <= '0;
        x_last_q <= request.width - 12'd1;
        offset_q <= request.ring.offset;
        address_q <= request.base + 36'(request.ring.offset);
        row_q <= request.base + 36'(request.ring.offset);
        row_step_q <= request.ring.row_step;
        wrap_q <= signed'({2'b00, request.ring.row_step}) - signed'({2'b00, request.ring.limit});
      end
      if (read) begin
        column_q <= column_q + 1'b1;
        x_q <= x_q + 1'b1;
        address_q <= address_q + 36'(request.step);
        if (row_end) begin
          x_q <= '0;
          offset_q <= next_offset;
          address_q <= next_row;
          row_q <= next_row;
        end
        if (column_last) begin
          reading_q <= 1'b0;
          get_q <= !get_q;
          bank_busy_o[bank_q] <= 1'b0;
        end
      end
      if (final_start_i) bank_busy_o[final_bank_i] <= 1'b1;
    end
  end

  // The sum that is there, and the bytes or held sums that come of sums before.
  logic               sum_valid_q, sum_place_q, sum_hold_q;
  tag_t               sum_tag_q, tag;
  logic               come, come_place, come_hold;
  bounds_t [1:0]      bounds;
  logic [1:0]         means;
  logic [Lanes*8-1:0] bytes, looked;
  logic [Lanes*32-1:0] held;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      sum_valid_q <= 1'b0;
      sum_place_q <= 1'b0;
      sum_hold_q <= 1'b0;
      sum_tag_q <= '0;
    end else begin
      sum_valid_q <= read;
      sum_place_q <= get_q;
      sum_hold_q <= request.hold;
      sum_tag_q <= '{
        last: column_last,
        done: column_last && request.last,
        over: address_q >= (request.hold ? 36'(BufferWords - 3) : 36'(BufferWords)),
        word: address_q[19:0]
      };
    end
  end

  for (genvar p = 0; p < 2; p++) begin : gen_bounds
    assign bounds[p] = request_q[p].bounds;
    assign means[p] = request_q[p].mean;
  end

  lf_requantize #(
    .Lanes  (Lanes),
    .TagBits($bits(tag_t))
  ) u_requantize (
    .clk_i,
    .rst_ni,
    .valid_i       (sum_valid_q),
    .place_i       (sum_place_q),
    .hold_i        (sum_hold_q),
    .tag_i         (sum_tag_q),
    .sum_i         (sum_data_i),
    .write_place_i (prepare_q),
    .bias_write_i  (bias_write),
    .bias_i        (bias),
    .factor_write_i(prepare_done),
    .multiplier_i  (multiplier),
    .shift_i       (shift),
    .bounds_i      (bounds),
    .mean_i        (means),
    .valid_o       (come),
    .place_o       (come_place),
    .hold_o        (come_hold),
    .tag_o         (tag),
    .bytes_o       (bytes),
    .held_o        (held)
  );

  lf_tables #(
    .Lanes(Lanes)
  ) u_tables (
    .clk_i,
    .rst_ni,
    .write_i     (aux_i.valid && aux_i.space == SpaceTables),
    .write_word_i(aux_i.word[$clog2(WordsOfAllTables)-1:0]),
    .write_data_i(aux_data_i),
    .prepare_i   (preparing_q && request_q[prepare_q].has_table),
    .place_i     (prepare_q),
    .table_i     (request_q[prepare_q].table_id),
    .ready_o     (table_ready),
    .look_i      (come && request_q[come_place].has_table),
    .look_place_i(come_place),
    .look_bytes_i(bytes),
    .bytes_o     (looked)
  );

  // Words that wait to be written.
  logic [Window-1:0][Lanes*8-1:0] words_q [Depth];
  waiting_t                          heads_q [Depth];
  logic [$clog2(Depth)-1:0]       first_q, next_q;

  always_ff @(posedge clk_i) begin
    if (come) begin
      words_q[next_q][0] <= looked;
      if (come_hold) words_q[next_q] <= held;
      heads_q[next_q] <= '{place: come_place, hold: come_hold, tag: tag};
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      first_q <= '0;
      next_q <= '0;
    end else begin
      if (come) next_q <= next_q + 1'b1;
      if (leaves) first_q <= first_q + 1'b1;
    end
  end

  assign head = heads_q[first_q];
  assign wr_valid_o = first_q != next_q && !head.tag.over;
  assign wr_word_o = head.tag.word;
  assign wr_mask_o = head.hold ? '1 : Window'(1);
  assign wr_data_o = words_q[first_q];
  assign wr_lanes_o = request_q[head.place].lanes;
  assign leaves = wr_valid_o && wr_grant_i;
  assign done_o = leaves && head.tag.done;
  assign fault_o[1] = first_q != next_q && head.tag.over;
  assign fault_number_o[1] = request_q[head.place].number;
  assign busy_o = valid_q != '0;

  logic unused;
  assign unused = ^{d, wrapped[32], aux_i};

  `LF_ASSERT(BankFree, !final_start_i || !bank_busy_o[final_bank_i],
             "a bank is filled whose sums are not all read")
  `LF_ASSERT(QueueHasRoom, !come || ($clog2(Depth))'(next_q + 1'b1) != first_q,
             "a word comes for which there is no room")
  `LF_HELD(WriteHeld, wr_valid_o, wr_grant_i, {wr_word_o, wr_mask_o, wr_data_o, wr_lanes_o})
endmodule
