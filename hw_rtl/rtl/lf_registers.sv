// Registers that software sees: how to run, how it went, interrupts, and counters.
//
// What is read appears in the cycle after its access, and stays until the next read.
module lf_registers
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferBytes = 262144,
  localparam int unsigned PageBits = $clog2(PageBytes)
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  register_access_t    access_i,
  output logic [31:0]         rdata_o,
  output logic                irq_o,    // level: something is pending that is enabled
  // To the core. Writes while it is busy are ignored, but for abort and interrupts.
  output logic                start_o,  // pulse
  output logic                abort_o,  // pulse
  output settings_t           settings_o,
  // From the core.
  input  outcome_t            outcome_i,
  input  logic                bus_idle_i,
  input  logic [Counters-1:0] count_i,  // counters that go on now: those of bytes by 16, the others by 1
  input  logic                count_busy_i
);
  localparam int unsigned ByteCounters = int'(CountCycles);  // the first ones

  logic [31:PageBits] offset_q;
  logic [27:0] program_q;
  logic [31:0] words_q;
  logic [31:0] read_base_q;
  logic [31:0] read_limit_q;
  logic [31:0] write_base_q;
  logic [31:0] write_limit_q;
  logic [31:0] watchdog_q;
  logic [31:0] cycle_limit_q;
  logic [63:0] counters_q [Counters];
  logic        start_q;
  logic        clear_q;
  logic        abort_q;
  logic        done_q;  // as it was in the last cycle
  logic [1:0]  enabled_q;  // interrupts: done, failed
  logic [1:0]  pending_q;
  logic [31:0] rdata_q;

  logic        write;
  logic        idle;
  logic [11:0] address;
  control_reg_t control;
  logic [1:0]  happened;
  logic [1:0]  acknowledged;
  logic        unused;

  assign write        = access_i.valid && access_i.write;
  assign idle         = !outcome_i.busy && !start_q;
  assign address      = {access_i.addr[11:2], 2'b00};
  assign control      = control_reg_t'(access_i.wdata);
  assign happened     = {outcome_i.failed, 1'b1} & {2{outcome_i.done && !done_q}};
  assign acknowledged = write && address == RegInterruptPending ? access_i.wdata[1:0] : '0;
  assign unused       = ^{access_i.addr[1:0], control.reserved};

  // What a register holds. (A function, so that simulation looks for it only when it is read.)
  function automatic logic [31:0] held();
    unique case (address)
      RegId:               return FixedId;
      RegVersion:          return FixedVersion;
      RegIsa:              return FixedIsa;
      RegCapability:       return capability_reg_t'{reserved: '0, lanes: 8'(Lanes),
                                                    outstanding: 8'(Outstanding)};
      RegBufferBytes:      return BufferBytes;
      RegStatus: begin
        return status_reg_t'{reserved: '0, busy: !idle, done: outcome_i.done && idle,
                             failed: outcome_i.failed && idle, bus: !bus_idle_i};
      end
      RegError:            return error_reg_t'{reserved: '0, code: outcome_i.error,
                                               queue_: outcome_i.found_by};
      RegErrorIndex:       return outcome_i.index;
      RegInterruptEnable:  return {30'd0, enabled_q};
      RegInterruptPending: return {30'd0, pending_q};
      RegDramOffset:       return {offset_q, PageBits'(0)};
      RegProgramAddress:   return {program_q, 4'd0};
      RegProgramWords:     return words_q;
      RegReadBase:         return read_base_q;
      RegReadLimit:        return read_limit_q;
      RegWriteBase:        return write_base_q;
      RegWriteLimit:       return write_limit_q;
      RegWatchdog:         return watchdog_q;
      RegCycleLimit:       return cycle_limit_q;
      default:             return '0;
    endcase
  endfunction

  function automatic logic [31:0] counted();
    logic [31:0] found;
    found = '0;
    for (int unsigned k = 0; k < Counters; k++) begin
      if (address[11:3] == 9'((32'(RegCounters) >> 3) + k))
        found = address[2] ? counters_q[k][63:32] : counters_q[k][31:0];
    end
    return found;
  endfunction

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      offset_q      <= '0;
      program_q     <= '0;
      words_q       <= '0;
      read_base_q   <= '0;
      read_limit_q  <= '0;
      write_base_q  <= '0;
      write_limit_q <= '0;
      watchdog_q    <= ResetWatchdog;
      cycle_limit_q <= ResetCycleLimit;
      start_q       <= 1'b0;
      clear_q       <= 1'b0;
      abort_q       <= 1'b0;
      rdata_q       <= '0;
    end else begin
      start_q <= 1'b0;
      clear_q <= 1'b0;
      abort_q <= write && address == RegControl && control.abort_;
      if (write && idle) begin
        unique case (address)
          RegControl: begin
            start_q <= control.start && !control.abort_;
            clear_q <= control.clear;
          end
          RegDramOffset:     offset_q      <= access_i.wdata[31:PageBits];
          RegProgramAddress: program_q     <= access_i.wdata[31:4];
          RegProgramWords:   words_q       <= access_i.wdata;
          RegReadBase:       read_base_q   <= access_i.wdata;
          RegReadLimit:      read_limit_q  <= access_i.wdata;
          RegWriteBase:      write_base_q  <= access_i.wdata;
          RegWriteLimit:     write_limit_q <= access_i.wdata;
          RegWatchdog:       watchdog_q    <= access_i.wdata;
          RegCycleLimit:     cycle_limit_q <= access_i.wdata;
          default:           ;
        endcase
      end
      if (access_i.valid && !access_i.write) rdata_q <= held() | counted();
    end
  end

  // Interrupts: what happens as it is acknowledged is not lost.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      done_q    <= 1'b0;
      enabled_q <= '0;
      pending_q <= '0;
    end else begin
      done_q    <= outcome_i.done;
      pending_q <= (pending_q & ~acknowledged) | happened;
      if (write && address == RegInterruptEnable) enabled_q <= access_i.wdata[1:0];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      for (int unsigned k = 0; k < Counters; k++) counters_q[k] <= '0;
    end else if (clear_q) begin
      for (int unsigned k = 0; k < Counters; k++) counters_q[k] <= '0;
    end else if (count_busy_i) begin
      for (int unsigned k = 0; k < Counters; k++) begin
        if (count_i[k]) counters_q[k] <= counters_q[k] + (k < ByteCounters ? 64'(BeatBytes) : 64'd1);
      end
    end
  end

  assign rdata_o        = rdata_q;
  assign irq_o          = (pending_q & enabled_q) != '0;
  assign start_o        = start_q;
  assign abort_o        = abort_q;
  assign settings_o     = '{
    dram_offset:   offset_q,
    program_beat:  program_q,
    program_words: words_q,
    // Only whole beats are touched.
    read_region:   '{first: 29'(read_base_q[31:4]) + 29'(read_base_q[3:0] != '0),
                     limit: 29'(read_limit_q[31:4])},
    write_region:  '{first: 29'(write_base_q[31:4]) + 29'(write_base_q[3:0] != '0),
                     limit: 29'(write_limit_q[31:4])},
    watchdog:      watchdog_q,
    cycle_limit:   cycle_limit_q
  };
endmodule
