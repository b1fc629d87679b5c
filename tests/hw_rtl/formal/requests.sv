// What holds of lf_requests for every transfer: requests stay until they are taken, keep within their region
// and within 4 KiB, and are in all as long as the transfer.
//
// Assumed of the transfer is what lf_job makes: at least one beat of each kind, and lengths that agree.
module requests
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
(
  input logic    clk_i,
  input logic    load_wish_i,
  input logic    start_wish_i,
  input job_t    job_i,
  input region_t region_i,
  input logic    ready_i
);
  logic     rst_nq = 1'b0;
  logic [9:0] line, total;  // beats
  logic     load, start, idle, loaded, outside, valid;
  request_t request;
  region_t  region_q;

  assign load  = load_wish_i && idle && rst_nq;
  assign start = start_wish_i && loaded && rst_nq;

  lf_requests u_requests (
    .clk_i,
    .rst_ni   (rst_nq),
    .load_i   (load),
    .job_i,
    .region_i (region_q),
    .idle_o   (idle),
    .loaded_o (loaded),
    .start_i  (start),
    .outside_o(outside),
    .valid_o  (valid),
    .request_o(request),
    .ready_i
  );

  // What has been asked for, of what there is. A job may be taken while the last request of another is held.
  logic [15:0] asked_q = '0, wanted_q = '0, next_q = '0;
  logic        taken, over;  // over: the job before has been asked for, with this cycle
  assign taken = rst_nq && valid && ready_i;
  assign over  = asked_q + (taken ? 16'(request.beats) : 16'd0) == wanted_q;
  logic        held_q = 1'b0;
  request_t    request_q;

  always_ff @(posedge clk_i) begin
    rst_nq   <= 1'b1;
    region_q <= rst_nq ? region_q : region_i;
    held_q   <= rst_nq && valid && !ready_i;
    request_q <= request;
    if (over && (load || next_q != '0)) begin
      asked_q  <= '0;
      wanted_q <= load ? 16'(total) : next_q;
      next_q   <= '0;
    end else begin
      if (load) next_q <= 16'(total);
      if (taken) asked_q <= asked_q + 16'(request.beats);
    end
  end

  always_comb begin
    line  = 10'(job_i.tail_beats) + (job_i.blocks == 10'd1 ? 10'd0 : 10'(job_i.full_beats));
    total = job_i.rows == 12'd1 ? line : line << 1;
    assume (job_i.rows != '0 && job_i.rows <= 12'd2 && job_i.blocks != '0 && job_i.blocks <= 10'd2);
    assume (job_i.full_beats != '0 && job_i.full_beats <= 24'd100 && job_i.tail_beats != '0 &&
            job_i.tail_beats <= job_i.full_beats);
    assume (job_i.line_beats == LengthWidth'(line));
    assume (job_i.first_beats == LengthWidth'(job_i.merge_rows ? total : job_i.merge_blocks ? line :
                                              10'(job_i.full_beats)));
    assume (job_i.beat < 38'h20_0000_0000);  // sums of a transfer's fields have 37 bits
    assume (region_i.limit <= 29'h1000_0000);  // addresses have 32 bits
    assume (!job_i.merge_rows || job_i.merge_blocks);
    assume (job_i.blocks != 10'd1 || job_i.merge_blocks);
    if (rst_nq) begin
      if (held_q) assert (valid && request == request_q);
      if (valid) begin
        assert (request.beats != '0 && 8'(request.beat[5:0]) + 8'(request.beats) <= 8'd64);
        assert (29'(request.beat) >= region_q.first &&
                30'(request.beat) + 30'(request.beats) <= 30'(region_q.limit));
        assert (!outside);
        assert (request.last == (asked_q + 16'(request.beats) == wanted_q));
        assert (asked_q + 16'(request.beats) <= wanted_q);
      end
      if (idle && !valid && !outside) assert (asked_q == wanted_q && next_q == '0);
    end
  end

  always_comb begin
    cover (rst_nq && idle && !valid && !outside && wanted_q > 16'd100);
    cover (load && valid && !ready_i);
  end
endmodule
