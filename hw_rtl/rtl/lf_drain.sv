// Takes finished sums, one column a cycle, through bias, factor, zero point, bounds and table, and writes them; or writes sums as they are, to be held.
//
// A job is a block of output channels of a command. There is room for two: while one is drained, the bias, factors and table of the next are fetched.
module lf_drain
  import lf_isa_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384,
  localparam int unsigned WordsOfAllTables = Tables * TableBytes / Lanes
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,
  // A job, with its command.
  input  logic                           job_valid_i,
  output logic                           job_ready_o,
  input  logic [9:0]                     job_block_i,
  input  logic                           job_half_i,
  input  logic                           job_last_i,  // of the command
  input  logic [2:0]                     job_number_i,  // of the command, modulo 8
  input  computation_t                   descriptor_i,
  input  logic [9:0]                     columns_i,
  input  logic [31:0]                    o_offset_i,
  input  logic [31:0]                    o_row_step_i,
  input  logic [31:0]                    o_limit_i,
  input  logic [31:0]                    b_offset_i,
  input  logic [31:0]                    b_row_step_i,
  input  logic [31:0]                    b_limit_i,
  output logic                           busy_o,
  output logic                           done_o,  // the last word of a command is written
  // Halves of the accumulators.
  input  logic                           final_start_i,  // the first column of a block's last pass is sent to this half
  input  logic                           final_half_i,
  input  logic                           filled_i,  // a finished sum, in the order of columns, will be in place in the next cycle
  input  logic                           filled_half_i,
  output logic [1:0]                     half_busy_o,  // from then until all columns are read
  output logic                           sum_read_o,
  output logic                           sum_half_o,
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
  input  logic                           aux_valid_i,
  input  space_e                         aux_space_i,
  input  logic [19:0]                    aux_word_i,
  input  logic [Lanes*8-1:0]             aux_data_i
);
  localparam int unsigned LanesOfWord = Lanes / 4;  // int32 in a word
  localparam int unsigned LaneBits = $clog2(Lanes);

  typedef struct {
    logic              hold;  // sums as they are
    logic [Lanes-1:0]  lanes;  // that are written
    logic              last;  // of the command
    logic [2:0]        number;
    logic              half;
    logic [9:0]        columns;
    logic [11:0]       width;
    logic [4:0]        step;  // words from one column to the next
    logic [35:0]       base;  // words
    logic [31:0]       offset;  // words, of the first row
    logic [31:0]       row_step;
    logic [31:0]       limit;
    logic [1:0]        scale;
    logic [7:0]        factors;  // row
    logic [30:0]       multiplier;
    logic [5:0]        shift;
    logic signed [8:0] zero;
    logic signed [8:0] low;
    logic signed [8:0] high;
    logic              has_table;
    logic [5:0]        table_id;
    logic              has_bias;
    logic signed [31:0] bias_value;
    logic [20:0]       bias;  // word
    logic [2:0]        bias_words;
  } job_t;
  job_t       job_q [2];
  job_t       job_new;
  logic [1:0] valid_q, prepared_q;
  logic       put_q, get_q;  // where the next job goes; where the next to drain is

  // Lanes that a finished block is written to; sums that are held take all.
  logic [Lanes-1:0] written;
  logic [6:0]       lane, lane_end;
  logic             chosen;

  always_comb begin
    written = '1;
    chosen = descriptor_i.operation == 3'(DoCopy) && descriptor_i.lanes != '0;
    lane = 7'(descriptor_i.o_lane);
    lane_end = job_last_i ? descriptor_i.out_tail : 7'(Lanes);
    if (descriptor_i.last) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        written[l] = 7'(l) < lane_end && (descriptor_i.operation != 3'(DoConv) || 7'(l) >= lane) && !chosen;
      end
      if (chosen) begin
        for (int unsigned k = 0; k < Lanes; k++) begin
          if (7'(k) < descriptor_i.lanes && lane < lane_end) written[LaneBits'(lane)] = 1'b1;
          lane = lane + 7'(descriptor_i.o_lane_step);
        end
      end
    end
  end

  always_comb begin
    job_new = '{default: '0};
    if (job_valid_i) begin
      job_new.hold = !descriptor_i.last;
      job_new.lanes = written;
      job_new.last = job_last_i;
      job_new.number = job_number_i;
      job_new.half = job_half_i;
      job_new.columns = columns_i;
      job_new.width = descriptor_i.o_width;
      if (descriptor_i.last) begin
        job_new.step = 5'(descriptor_i.o_step);
        job_new.base = 36'(descriptor_i.o_base) + 36'(job_block_i) * 36'(descriptor_i.o_block_words);
        job_new.offset = o_offset_i;
        job_new.row_step = o_row_step_i;
        job_new.limit = o_limit_i;
      end else begin
        job_new.step = 5'(Window);
        job_new.base = 36'(descriptor_i.b_base) + 36'(job_block_i) * 36'(descriptor_i.b_block_words);
        job_new.offset = b_offset_i;
        job_new.row_step = b_row_step_i;
        job_new.limit = b_limit_i;
      end
      job_new.scale = descriptor_i.scale;
      job_new.factors = descriptor_i.factors + 8'(job_block_i);
      job_new.multiplier = descriptor_i.multiplier;
      job_new.shift = descriptor_i.shift;
      job_new.zero = descriptor_i.scale == 2'(ScaleNone) ? '0 : descriptor_i.o_zero;
      job_new.low = descriptor_i.low;
      job_new.high = descriptor_i.high;
      job_new.has_table = descriptor_i.has_table;
      job_new.table_id = descriptor_i.table_id;
      job_new.has_bias = descriptor_i.has_bias;
      job_new.bias_value = descriptor_i.bias_value;
      job_new.bias = 21'(descriptor_i.bias) + 21'({job_block_i, 2'b00});
      // Words that hold the block's n sums of 4 bytes.
      job_new.bias_words = 3'd4;
      if (job_last_i) begin
        for (int unsigned k = 4; k > 0; k--) if (32'(descriptor_i.out_tail) <= k * LanesOfWord) job_new.bias_words = 3'(k);
      end
    end
  end

  // Preparing: bias, factors and table of the job at prepare_q.
  logic                prepare_q, preparing_q;
  logic [2:0]          bias_asked_q, bias_come_q, factor_asked_q;
  logic                bias_coming_q, factor_coming_q;
  logic [1:0]          bias_part_q;
  logic [2:0]          factor_part_q;
  logic [Lanes*8-1:0]  factor_data;
  logic [Lanes*40-1:0] factor_row_q;
  logic                table_ready, bias_done, factor_done, prepare_done;
  logic                by_channel, with_bias;
  int                  bias_q [2][Lanes];
  logic [30:0]         multiplier_q [2][Lanes];
  logic [5:0]          shift_q [2][Lanes];

  always_comb begin
    with_bias = !job_q[prepare_q].hold && job_q[prepare_q].has_bias;
    by_channel = !job_q[prepare_q].hold && job_q[prepare_q].scale == 2'(ScaleChannel);
    bias_done = !with_bias || bias_come_q == job_q[prepare_q].bias_words;
    factor_done = !by_channel || (factor_asked_q == 3'(FactorBytes) && !factor_coming_q);
    prepare_done = preparing_q && bias_done && factor_done && (table_ready || job_q[prepare_q].hold || !job_q[prepare_q].has_table);
    fault_o[0] = preparing_q && with_bias && bias_asked_q != job_q[prepare_q].bias_words
        && 32'(job_q[prepare_q].bias) + 32'(bias_asked_q) >= BufferWords;
    rd_valid_o = preparing_q && with_bias && bias_asked_q != job_q[prepare_q].bias_words && !fault_o[0];
    rd_word_o = job_q[prepare_q].bias[19:0] + 20'(bias_asked_q);
    fault_number_o[0] = job_q[prepare_q].number;
    job_ready_o = job_valid_i && !valid_q[put_q] && !preparing_q;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      prepare_q <= 1'b0;
      preparing_q <= 1'b0;
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
      if (job_ready_o) begin
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
    if (job_ready_o) job_q[put_q] <= job_new;
    if (bias_coming_q) begin
      for (int unsigned l = 0; l < LanesOfWord; l++) bias_q[prepare_q][{bias_part_q, ($clog2(LanesOfWord))'(l)}] <= rd_data_i[l*32 +: 32];
    end
    if (preparing_q && !with_bias) begin
      for (int unsigned l = 0; l < Lanes; l++) bias_q[prepare_q][l] <= job_q[prepare_q].bias_value;
    end
    if (factor_coming_q) begin
      for (int unsigned k = 0; k < FactorBytes; k++) if (factor_part_q == 3'(k)) factor_row_q[k*Lanes*8 +: Lanes*8] <= factor_data;
    end
    if (prepare_done) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        multiplier_q[prepare_q][l] <= by_channel ? factor_row_q[l*40 +: 31] : job_q[prepare_q].multiplier;
        shift_q[prepare_q][l] <= by_channel ? factor_row_q[l*40 + 32 +: 6] : job_q[prepare_q].shift;
      end
    end
  end

  lf_factors #(
    .Lanes(Lanes)
  ) u_factors (
    .clk_i,
    .write_i     (aux_valid_i && aux_space_i == SpaceFactors),
    .write_word_i(aux_word_i[10:0]),
    .write_data_i(aux_data_i),
    .read_i      (preparing_q && by_channel && factor_asked_q != 3'(FactorBytes)),
    .read_row_i  (job_q[prepare_q].factors),
    .read_part_i (factor_asked_q),
    .read_data_o (factor_data)
  );

  // Reading sums, in the order of rows and columns, with the place that each result goes to.
  logic               reading_q;
  logic [9:0]         filled_q [2];  // finished sums in place
  logic [9:0]         column_q;
  logic [11:0]        x_q;
  logic [35:0]        address;  // words
  logic [15:0]        x_place_q;
  logic [32:0]        next_offset;
  logic [31:0]        offset_q;
  logic               advance, read, column_last, over;
  job_t               job;

  always_comb begin
    job = job_q[get_q];
    address = job.base + 36'(offset_q) + 36'(x_place_q);
    over = address + (job.hold ? 36'd3 : 36'd0) >= 36'(BufferWords);
    column_last = column_q == job.columns - 10'd1;
    fault_o[1] = reading_q && over;
    fault_number_o[1] = job.number;
    next_offset = 33'(offset_q) + 33'(job.row_step);
    if (next_offset >= 33'(job.limit)) next_offset = next_offset - 33'(job.limit);
  end
  assign sum_read_o = reading_q && advance && !over && column_q < filled_q[job.half];
  assign read = sum_read_o && sum_grant_i;
  assign sum_half_o = job.half;
  assign sum_column_o = column_q[8:0];

  // The pipeline: sum, v (with bias), product, byte, word. All stages move together.
  typedef struct packed {
    logic        valid;
    logic        place;  // of the job
    logic        hold;
    logic        last;  // column of the job
    logic        done;  // of the command
    logic [19:0] word;
  } stage_t;
  stage_t              sum_q, v_stage_q, product_q, byte_q, word_q;
  int                  v_q [Lanes];
  longint              p_q [Lanes];
  logic [Lanes*8-1:0]  bytes_q, looked;
  logic [Lanes*32-1:0] held_q, sum_data;
  logic                start;

  assign advance = !word_q.valid || wr_grant_i;
  assign start = valid_q[get_q] && prepared_q[get_q] && !reading_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q <= '0;
      prepared_q <= '0;
      put_q <= 1'b0;
      get_q <= 1'b0;
      reading_q <= 1'b0;
      filled_q <= '{default: '0};
      column_q <= '0;
      x_q <= '0;
      x_place_q <= '0;
      offset_q <= '0;
      half_busy_o <= '0;
    end else begin
      if (job_ready_o) begin
        valid_q[put_q] <= 1'b1;
        prepared_q[put_q] <= 1'b0;
        put_q <= !put_q;
      end
      if (prepare_done) prepared_q[prepare_q] <= 1'b1;
      if (word_q.valid && wr_grant_i && word_q.last) valid_q[word_q.place] <= 1'b0;

      if (filled_i) filled_q[filled_half_i] <= filled_q[filled_half_i] + 1'b1;
      if (start) begin
        prepared_q[get_q] <= 1'b0;
        reading_q <= 1'b1;
        column_q <= '0;
        x_q <= '0;
        x_place_q <= '0;
        offset_q <= job.offset;
      end
      if (read) begin
        column_q <= column_q + 1'b1;
        x_q <= x_q + 1'b1;
        x_place_q <= x_place_q + 16'(job.step);
        if (x_q == job.width - 12'd1) begin
          x_q <= '0;
          x_place_q <= '0;
          offset_q <= next_offset[31:0];
        end
        if (column_last) begin
          reading_q <= 1'b0;
          get_q <= !get_q;
          half_busy_o[job.half] <= 1'b0;
          filled_q[job.half] <= '0;
        end
      end
      if (final_start_i) half_busy_o[final_half_i] <= 1'b1;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      sum_q <= '0;
      v_stage_q <= '0;
      product_q <= '0;
      byte_q <= '0;
      word_q <= '0;
    end else if (advance) begin
      sum_q.valid <= read;
      sum_q.place <= get_q;
      sum_q.hold <= job.hold;
      sum_q.last <= column_last;
      sum_q.done <= column_last && job.last;
      sum_q.word <= address[19:0];
      v_stage_q <= sum_q;
      product_q <= v_stage_q;
      byte_q <= product_q;
      word_q <= byte_q;
    end
  end

  // One lane's byte from the product with its factor; `product` is the plain sum where nothing scales.
  function automatic logic [7:0] scaled(longint product, logic scales, logic [5:0] shift, logic signed [8:0] zero, logic signed [8:0] low,
                                        logic signed [8:0] high);
    longint found;
    found = product;
    if (scales) found = (product + signed'((64'd1 << shift) >> 1)) >>> shift;
    found = found + 64'(zero);
    if (found < 64'(low)) found = 64'(low);
    if (found > 64'(high)) found = 64'(high);
    return found[7:0];
  endfunction

  // Sums are kept where the pipeline stands still.
  logic                kept_q;
  logic [Lanes*32-1:0] kept_data_q;
  assign sum_data = kept_q ? kept_data_q : sum_data_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) kept_q <= 1'b0;
    else kept_q <= sum_q.valid && !advance;
  end

  always_ff @(posedge clk_i) begin
    if (sum_q.valid && !advance && !kept_q) kept_data_q <= sum_data_i;
  end

  always_ff @(posedge clk_i) begin
    if (advance && sum_q.valid) begin
      for (int unsigned l = 0; l < Lanes; l++) v_q[l] <= sum_q.hold ? sum_data[l*32 +: 32] : sum_data[l*32 +: 32] + bias_q[sum_q.place][l];
    end
    if (advance && v_stage_q.valid) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        p_q[l] <= v_stage_q.hold || job_q[v_stage_q.place].scale == 2'(ScaleNone)
            ? 64'(v_q[l]) : 64'(v_q[l]) * signed'({33'd0, multiplier_q[v_stage_q.place][l]});
      end
    end
    if (advance && product_q.valid) begin
      if (product_q.hold) begin
        for (int unsigned l = 0; l < Lanes; l++) held_q[l*32 +: 32] <= p_q[l][31:0];
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          bytes_q[l*8 +: 8] <= scaled(p_q[l], job_q[product_q.place].scale != 2'(ScaleNone), shift_q[product_q.place][l],
              job_q[product_q.place].zero, job_q[product_q.place].low, job_q[product_q.place].high);
        end
      end
    end
    if (advance && byte_q.valid) begin
      if (byte_q.hold) wr_data_o <= held_q;
      else wr_data_o[0] <= looked;
    end
  end

  lf_tables #(
    .Lanes(Lanes)
  ) u_tables (
    .clk_i,
    .rst_ni,
    .write_i     (aux_valid_i && aux_space_i == SpaceTables),
    .write_word_i(aux_word_i[$clog2(WordsOfAllTables)-1:0]),
    .write_data_i(aux_data_i),
    .prepare_i   (preparing_q && !job_q[prepare_q].hold && job_q[prepare_q].has_table),
    .place_i     (prepare_q),
    .table_i     (job_q[prepare_q].table_id),
    .ready_o     (table_ready),
    .look_i      (byte_q.valid && job_q[byte_q.place].has_table),
    .look_place_i(byte_q.place),
    .look_bytes_i(bytes_q),
    .bytes_o     (looked)
  );

  assign wr_valid_o = word_q.valid;
  assign wr_word_o = word_q.word;
  assign wr_mask_o = word_q.hold ? '1 : Window'(1);
  assign wr_lanes_o = job_q[word_q.place].lanes;
  assign done_o = word_q.valid && wr_grant_i && word_q.done;
  assign busy_o = valid_q != '0;

  logic unused;
  assign unused = ^{descriptor_i, next_offset[32], address[35:20], aux_word_i};
endmodule
