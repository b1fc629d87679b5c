// A model of DRAM for simulation: requests are answered in order, `latency` cycles after they were accepted,
// one beat a cycle.
//
// Plus arguments: +dram=FILE what it holds at first; +dump=FILE where to write what it holds at the end,
// +dump_first and +dump_bytes which bytes; +bytes how many there are, behind which it answers with an error;
// +latency cycles; +stall how often of 256 cycles each channel holds back, +seed of these; +fault an address
// whose beat is answered with an error; +silent beats to read after which nothing moves any more; +lost the
// number of a write (from 0 on) whose response never comes.
`include "lf_assert.svh"

module lf_dram #(
  parameter int unsigned Beats = 1 << 22  // of 16 bytes
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         rd_req_valid_i,
  output logic         rd_req_ready_o,
  input  logic [31:0]  rd_req_addr_i,
  input  logic [7:0]   rd_req_beats_i,
  output logic         rd_valid_o,
  input  logic         rd_ready_i,
  output logic [127:0] rd_data_o,
  output logic         rd_err_o,
  input  logic         wr_req_valid_i,
  output logic         wr_req_ready_o,
  input  logic [31:0]  wr_req_addr_i,
  input  logic [7:0]   wr_req_beats_i,
  input  logic         wr_valid_i,
  output logic         wr_ready_o,
  input  logic [127:0] wr_data_i,
  input  logic [15:0]  wr_strb_i,
  input  logic         wr_last_i,
  output logic         wr_resp_valid_o,
  output logic         wr_resp_err_o
);
  localparam int unsigned Depth = 4;  // requests that wait, a power of 2
  localparam int unsigned PointerWidth = $clog2(Depth);
  localparam int unsigned PlaceWidth = $clog2(Beats);

  typedef struct packed {
    logic [27:0] beat;
    logic [7:0]  left;
    logic [31:0] due;   // cycle of the first beat
  } request_t;

  logic [127:0] words_q [Beats];
  int unsigned  latency;
  int unsigned  stall;
  int unsigned  bytes;
  int unsigned  seed;
  int unsigned  fault;
  int unsigned  silent;
  int unsigned  lost;

  logic [31:0]             cycle_q;
  logic [31:0]             random_q;
  logic [31:0]             beats_read_q;
  logic [31:0]             responses_given_q;
  request_t                reads_q [Depth];
  logic [PointerWidth-1:0] read_new_q;
  logic [PointerWidth-1:0] read_old_q;
  logic [PointerWidth:0]   reads_q_count;
  logic                    rd_valid_q;
  logic [127:0]            rd_data_q;
  logic                    rd_err_q;
  logic [27:0]             write_beat_q;
  logic [7:0]              write_left_q;
  logic                    write_valid_q;
  logic                    write_err_q;
  logic [31:0]             responses_due_q [Depth];
  logic                    responses_err_q [Depth];
  logic [PointerWidth-1:0] response_new_q;
  logic [PointerWidth-1:0] response_old_q;
  logic [PointerWidth:0]   responses_q_count;

  logic     moves;
  logic     read_push;
  logic     read_beat;
  logic     read_end;
  request_t read_old;
  logic     write_push;
  logic     write_beat;
  logic     response_push;
  logic     response_pop;
  logic     rd_hold;
  logic     unused;

  // Every channel holds back by its own bits of a shift register.
  assign moves          = beats_read_q < silent;
  assign rd_hold        = 32'(random_q[7:0]) < stall;
  assign rd_req_ready_o = moves && reads_q_count != (PointerWidth + 1)'(Depth) &&
                          32'(random_q[12:5]) >= stall;
  assign read_push      = rd_req_valid_i && rd_req_ready_o;
  assign read_old       = reads_q[read_old_q];
  assign read_beat      = moves && reads_q_count != '0 && (!rd_valid_q || rd_ready_i) &&
                          cycle_q - read_old.due < 32'h8000_0000 && !rd_hold;
  assign read_end       = read_beat && read_old.left == 8'd1;
  assign rd_valid_o     = rd_valid_q;
  assign rd_data_o      = rd_data_q;
  assign rd_err_o       = rd_err_q;

  assign wr_req_ready_o  = moves && (!write_valid_q || response_push) && 32'(random_q[19:12]) >= stall;
  assign write_push      = wr_req_valid_i && wr_req_ready_o;
  assign wr_ready_o      = moves && write_valid_q && responses_q_count != (PointerWidth + 1)'(Depth) &&
                           32'(random_q[25:18]) >= stall;
  assign write_beat      = wr_valid_i && wr_ready_o;
  assign response_push   = write_beat && write_left_q == 8'd1;
  assign response_pop    = moves && responses_q_count != '0 &&
                           cycle_q - responses_due_q[response_old_q] < 32'h8000_0000;
  assign wr_resp_valid_o = response_pop && responses_given_q != lost;
  assign wr_resp_err_o   = wr_resp_valid_o && responses_err_q[response_old_q];
  assign unused          = ^{wr_req_addr_i[3:0], rd_req_addr_i[3:0]};

  function automatic logic bad(logic [27:0] beat);
    return 32'(beat) * 16 >= bytes || {4'd0, beat} == fault;
  endfunction

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      cycle_q           <= '0;
      random_q          <= seed;
      beats_read_q      <= '0;
      responses_given_q <= '0;
      read_new_q        <= '0;
      read_old_q        <= '0;
      reads_q_count     <= '0;
      rd_valid_q        <= 1'b0;
      rd_data_q         <= '0;
      rd_err_q          <= 1'b0;
      write_beat_q      <= '0;
      write_left_q      <= '0;
      write_valid_q     <= 1'b0;
      write_err_q       <= 1'b0;
      response_new_q    <= '0;
      response_old_q    <= '0;
      responses_q_count <= '0;
      for (int unsigned k = 0; k < Depth; k++) begin
        reads_q[k]         <= '0;
        responses_due_q[k] <= '0;
        responses_err_q[k] <= 1'b0;
      end
    end else begin
      cycle_q <= cycle_q + 32'd1;
      if (stall != 0) random_q <= {random_q[30:0], 1'b0} ^ (random_q[31] ? 32'h04C1_1DB7 : '0);
      if (read_push) begin
        reads_q[read_new_q] <= '{beat: rd_req_addr_i[31:4], left: rd_req_beats_i,
                                 due: cycle_q + latency - 32'd1};
        read_new_q          <= read_new_q + PointerWidth'(1);
      end
      if (rd_ready_i) rd_valid_q <= 1'b0;
      if (read_beat) begin
        rd_valid_q               <= 1'b1;
        rd_data_q                <= words_q[read_old.beat[PlaceWidth-1:0]];
        rd_err_q                 <= bad(read_old.beat);
        reads_q[read_old_q].beat <= read_old.beat + 28'd1;
        reads_q[read_old_q].left <= read_old.left - 8'd1;
        beats_read_q             <= beats_read_q + 32'd1;
      end
      if (read_end) read_old_q <= read_old_q + PointerWidth'(1);
      reads_q_count <= reads_q_count + (PointerWidth + 1)'(read_push) - (PointerWidth + 1)'(read_end);

      if (write_beat) begin
        write_beat_q <= write_beat_q + 28'd1;
        write_left_q <= write_left_q - 8'd1;
        write_err_q  <= write_err_q || bad(write_beat_q);
      end
      if (response_push) begin
        write_valid_q                   <= 1'b0;
        responses_due_q[response_new_q] <= cycle_q + latency;
        responses_err_q[response_new_q] <= write_err_q || bad(write_beat_q);
        response_new_q                  <= response_new_q + PointerWidth'(1);
      end
      if (write_push) begin
        write_beat_q  <= wr_req_addr_i[31:4];
        write_left_q  <= wr_req_beats_i;
        write_valid_q <= 1'b1;
        write_err_q   <= 1'b0;
      end
      if (response_pop) begin
        response_old_q    <= response_old_q + PointerWidth'(1);
        responses_given_q <= responses_given_q + 32'd1;
      end
      responses_q_count <= responses_q_count + (PointerWidth + 1)'(response_push) -
                           (PointerWidth + 1)'(response_pop);
    end
  end

  always_ff @(posedge clk_i) begin
    if (write_beat && !bad(write_beat_q)) begin
      for (int unsigned k = 0; k < 16; k++) begin
        if (wr_strb_i[k]) words_q[write_beat_q[PlaceWidth-1:0]][k*8+:8] <= wr_data_i[k*8+:8];
      end
    end
  end

  // Files hold the first byte first, $fread takes it as the highest.
  function automatic logic [127:0] turned(logic [127:0] word);
    logic [127:0] found;
    for (int unsigned k = 0; k < 16; k++) found[k*8+:8] = word[(15-k)*8+:8];
    return found;
  endfunction

  // For a harness that has memory of its own: a word of 32 bits, by its number.
  export "DPI-C" function lf_dram_read;
  export "DPI-C" function lf_dram_write;

  function automatic int unsigned lf_dram_read(int unsigned word);
    return words_q[PlaceWidth'(word / 4)][(word % 4)*32+:32];
  endfunction

  function automatic void lf_dram_write(int unsigned word, int unsigned value);
    words_q[PlaceWidth'(word / 4)][(word % 4)*32+:32] = value;
  endfunction

  initial begin
    string name;
    int    file;
    int    got;
    latency = 40;
    stall   = 0;
    seed    = 1;
    bytes   = Beats * 16;
    fault   = '1;
    silent  = '1;
    lost    = '1;
    void'($value$plusargs("latency=%d", latency));
    void'($value$plusargs("stall=%d", stall));
    void'($value$plusargs("seed=%d", seed));
    void'($value$plusargs("bytes=%d", bytes));
    void'($value$plusargs("silent=%d", silent));
    void'($value$plusargs("lost=%d", lost));
    if ($value$plusargs("fault=%d", fault)) fault = fault / 16;
    if (latency == 0) latency = 1;
    if (stall > 250) stall = 250;  // of 256: it goes on
    if (seed == 0) seed = 1;
    if (bytes > Beats * 16) bytes = Beats * 16;
    if ($value$plusargs("dram=%s", name)) begin
      file = $fopen(name, "rb");
      if (file == 0) $fatal(1, "cannot read %s", name);
      got = $fread(words_q, file);
      $fclose(file);
      for (int k = 0; k < (got + 15) / 16; k++) words_q[k] = turned(words_q[k]);
    end
  end

  final begin
    string       name;
    int          file;
    int unsigned first;
    int unsigned number;
    first  = 0;
    number = bytes;
    void'($value$plusargs("dump_first=%d", first));
    void'($value$plusargs("dump_bytes=%d", number));
    if ($value$plusargs("dump=%s", name)) begin
      file = $fopen(name, "wb");
      for (int unsigned k = first / 16; k < (first + number + 15) / 16; k++) $fwrite(file, "%u", words_q[k]);
      $fclose(file);
    end
  end

  // The reset is asynchronous here, and no condition.
  `LF_ASSERT(LastInPlace, !write_beat || wr_last_i == (write_left_q == 8'd1),
             "the last beat of a write is not where its request ends", clk_i, 1'b0)
  `LF_ASSERT(ReadInPage, !read_push ||
             (32'(rd_req_addr_i[11:4]) + 32'(rd_req_beats_i) <= 256 && rd_req_beats_i != 0),
             "a read crosses 4 KiB",
             clk_i, 1'b0)
  `LF_ASSERT(WriteInPage, !write_push ||
             (32'(wr_req_addr_i[11:4]) + 32'(wr_req_beats_i) <= 256 && wr_req_beats_i != 0),
             "a write crosses 4 KiB",
             clk_i, 1'b0)
endmodule
